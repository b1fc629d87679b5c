"""Networks in 8-bit integers made of real ones:
calibration, ONNX Runtime's rewriting, and what it does to accuracy.
"""
