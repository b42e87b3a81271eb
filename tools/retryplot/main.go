// Command retryplot generates the part of docs/retries.md that shows the presets: their tables, and a chart
// of each in docs/retries/<preset>.svg. The data comes from retry.Preview. A test fails if the
// committed files are out of date.
//
//	go generate ./tools/retryplot
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/everpost/everpost/internal/retry"
)

//go:generate go run . ../../docs

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: retryplot <directory of the documentation>")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write updates the page and the charts in the directory.
func write(docs string) error {
	path := filepath.Join(docs, "retries.md")
	old, err := os.ReadFile(path) //nolint:gosec // the directory is an argument of the build
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	text, err := page(string(old))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	files := map[string]string{path: text}
	for _, preset := range retry.Presets() {
		files[filepath.Join(docs, "retries", preset.Name+".svg")] = picture(preset)
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil { //nolint:gosec // documentation is public
			return fmt.Errorf("write the documentation: %w", err)
		}
	}
	return nil
}
