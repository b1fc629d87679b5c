"""An operator and its epilogue that exceed the buffer, in the tiles that move the fewest bytes."""
