"""From a plan to C and to command streams. Nothing lives here yet."""
