"""Quantisation of networks to 8-bit integers: calibration, ONNX Runtime's quantiser, and accuracy."""
