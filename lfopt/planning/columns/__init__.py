"""Groups whose maps are cut along columns: in strips, and in patches of rows and columns."""
