"""Mode brr: bands of rows while weights stream past, their buffer, steps and bounds."""
