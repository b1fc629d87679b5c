"""Commands of the accelerator: which of them a step becomes, and what its stores hold."""
