"""Jobs, options, flows, schedules and failures as values, and the rules that hold for them."""
