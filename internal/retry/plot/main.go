// Plot makes what docs/retries.md shows of the presets: their tables, and a picture of
// each, docs/retries/<preset>.svg. It draws what retry.Preview says of the real presets;
// a test fails when the committed files are not what it makes.
//
//	go generate ./internal/retry/plot
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/everpost/everpost/internal/retry"
)

//go:generate go run . ../../../docs

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: plot <directory of the documentation>")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write brings the page and the pictures in the directory up to date.
func write(docs string) error {
	path := filepath.Join(docs, "retries.md")
	old, err := os.ReadFile(path) //nolint:gosec // the directory is given by who builds
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
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil { //nolint:gosec // documentation is for everyone
			return fmt.Errorf("write the documentation: %w", err)
		}
	}
	return nil
}
