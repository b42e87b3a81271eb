package docs_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/config"
)

// update says to regenerate the tables, which `make docs` does.
var update = flag.Bool("update", false, "regenerate parts of the pages")

const (
	configurationPage = "configuration.md"
	settingsEnd       = "<!-- end of settings -->\n"
)

func settingsBegin(section string) string { return "<!-- settings: " + section + " -->\n" }

// The tables of configuration.md are what the settings declare, and every setting is in one.
func TestConfigurationShowsEverySetting(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(configurationPage)
	require.NoError(t, err)
	committed := string(content)
	sections := map[string][]config.Setting{}
	for _, s := range cli.Settings() {
		sections[s.Section] = append(sections[s.Section], s)
	}
	require.Equal(t, len(sections), strings.Count(committed, settingsEnd), "a table of no section")
	made := committed
	for section, settings := range sections {
		before, _, _ := strings.Cut(made, settingsBegin(section))
		heading := before[strings.LastIndex(before, "\n## ")+len("\n## "):]
		heading, _, _ = strings.Cut(heading, "\n")
		require.Equal(t, config.SectionTitle(section), heading, "as in the help of commands")
		old := between(t, made, settingsBegin(section), settingsEnd)
		made = strings.Replace(made, settingsBegin(section)+old+settingsEnd, settingsBegin(section)+settingsTable(settings)+settingsEnd, 1)
	}
	if *update {
		require.NoError(t, os.WriteFile(configurationPage, []byte(made), 0o644))
		return
	}
	require.Equal(t, made, committed, "run make docs")
}

// settingsTable lists settings. Which processes read them is said where they differ.
func settingsTable(settings []config.Setting) string {
	mixed := false
	for _, s := range settings {
		mixed = mixed || s.Role != settings[0].Role
	}
	var b strings.Builder
	if mixed {
		b.WriteString("| variable | default | read by | |\n|---|---|---|---|\n")
	} else {
		b.WriteString("| variable | default | |\n|---|---|---|\n")
	}
	for _, s := range settings {
		b.WriteString("| `" + s.Variable + "`")
		if flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(s.Variable, "EVERPOST_")), "_", "-"); flag != s.Flag {
			b.WriteString(" (`" + s.Flag + "`)")
		}
		b.WriteString(" | " + defaultCell(s))
		if mixed {
			b.WriteString(" | " + readers(s))
		}
		b.WriteString(" | " + description(s) + " |\n")
	}
	return b.String()
}

func defaultCell(s config.Setting) string {
	if s.Default == "" {
		return s.Unset
	}
	return "`" + s.Default + "`"
}

func readers(s config.Setting) string {
	switch s.Role {
	case "api":
		return "API"
	case "worker":
		return "worker"
	}
	return "API, worker"
}

// literal is what the help of a command line has in single quotes.
var literal = regexp.MustCompile(`(^|[ (])'([^']+)'`)

func description(s config.Setting) string {
	text := literal.ReplaceAllString(s.Help, "$1`$2`")
	if s.Range != "" {
		text += " Values: " + s.Range + "."
	}
	if s.See != "" {
		page, _, _ := strings.Cut(s.See, "#")
		text += " See [" + page + "](" + s.See + ")."
	}
	return strings.ReplaceAll(text, "|", `\|`)
}

// The page names each variable of Temporal that the help of the commands names.
func TestConfigurationNamesTemporalsVariables(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(configurationPage)
	require.NoError(t, err)
	variables := regexp.MustCompile(`TEMPORAL_[A-Z_]+`).FindAllString((&cli.ServeCommand{}).Help(), -1)
	require.NotEmpty(t, variables)
	for _, name := range variables {
		require.Contains(t, string(content), "`"+name+"`")
	}
}
