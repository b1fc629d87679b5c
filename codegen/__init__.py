"""From a plan to C and to command streams. Importing it imports nothing: what runs generated code needs no generator."""
