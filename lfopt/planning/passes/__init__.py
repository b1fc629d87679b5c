"""Groups that run in several passes, each of them a nest, with maps that stay on chip between them."""
