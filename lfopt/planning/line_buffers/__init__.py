"""Line buffers: which rows of each map are on chip while the rows of a group pass through rings."""
