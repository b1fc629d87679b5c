"""Exceptions for wrong input.

Each message names the file, node or field, what was found and what is accepted.

    LfoptError
    ├── InvalidModel         the ONNX file cannot be read, or is not a legal model
    │   └── UnsupportedModel legal ONNX that lfopt does not take, such as control flow
    │       └── OpenShape    shapes are known only when arrays are there, and none were given
    ├── InvalidGraph         a Graph that breaks its own rules
    ├── InvalidConfig        a configuration file, hardware description or command-line value
    ├── InvalidPlan          a plan.json that is malformed or contradicts its model
    ├── FalsePlan            a plan that lfopt made and its own recount refuses: a defect of lfopt
    ├── MissingValues        something needs weight values, and the model has only their shapes
    └── CannotWrite          a file cannot be written: no space, no permission (an OSError too)

A group that does not fit the buffer is not an error: it is the value `DoesNotFit`.
"""


class LfoptError(Exception):
    """Wrong input; the message is one line for the user."""

    exit_code = 2  # of a command that ends with it


class InvalidModel(LfoptError):
    """The ONNX file cannot be read, or is not a legal model."""


class UnsupportedModel(InvalidModel):
    """A legal ONNX model that lfopt does not take."""


class OpenShape(UnsupportedModel):
    """An input has extents that are known only when arrays are there, and none were given for them."""


class InvalidGraph(LfoptError):
    """A Graph that breaks its own rules."""


class InvalidConfig(LfoptError):
    """A configuration field or command-line value is wrong."""


class InvalidPlan(LfoptError):
    """A plan file is malformed, or contradicts the model beside it."""


class FalsePlan(LfoptError):
    """A plan that lfopt made does not hold in its own recount: a defect of lfopt, and no input's fault."""

    exit_code = 4


class MissingValues(LfoptError):
    """Weight values are needed, and only their shapes are at hand."""


class CannotWrite(LfoptError, OSError):
    """A file cannot be written."""
