"""What commands say as JSON: a command builds its answer and hands it to `writing.answer`."""
