package cli

// CommandLine is commandLine for tests.
func CommandLine(words []string) string { return commandLine(words) }
