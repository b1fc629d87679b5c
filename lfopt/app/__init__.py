"""The roof: command line, configuration, pipeline. The only place that knows files, time and every wing."""
