package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// The parts of the page that are regenerated, by the names in their marks.
const (
	ledgerPart  = "ledger"
	plantedPart = "planted"
	soakPart    = "soak"
)

// writeLedger writes the ledger, the table of planted bugs and that of the soak of a directory of results into a page, between their marks.
func writeLedger(results, page string) error {
	runs, err := readResults(results)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return fmt.Errorf("there are no results in %q", results)
	}
	bugs, err := readPlanted(results)
	if err != nil {
		return err
	}
	soaked, err := readSoak(results)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	written, err := replacePart(old, ledgerPart, ledgerTable(runs))
	if err == nil {
		written, err = replacePart(written, plantedPart, plantedTable(bugs))
	}
	if err == nil {
		written, err = replacePart(written, soakPart, soakTable(soaked))
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(page, written, 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// replacePart replaces what is between the marks of a part.
func replacePart(page []byte, part, text string) ([]byte, error) {
	begin, end := "<!-- "+part+": made by make faults-report, do not edit -->\n", "<!-- end of "+part+" -->"
	before, rest, begins := bytes.Cut(page, []byte(begin))
	_, after, ends := bytes.Cut(rest, []byte(end))
	if !begins || !ends {
		return nil, errors.New("the page has no marks for the part " + part)
	}
	return slices.Concat(before, []byte(begin+"\n"+text+"\n"+end), after), nil
}

// ledgerTable is the ledger, a line for each class.
func ledgerTable(runs []result) string {
	byClass := map[string][]result{}
	for _, r := range runs {
		byClass[r.Class] = append(byClass[r.Class], r)
	}
	var b strings.Builder
	b.WriteString("| class | shapes | runs | missed | acknowledged | delivered | dead | cancelled | discarded |" +
		" lost | unexpected | sent twice | recovery p50, max |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range classes() {
		if all := byClass[c.name]; len(all) > 0 {
			ledgerLine(&b, "`"+c.name+"`", all)
		}
	}
	ledgerLine(&b, "**all**", runs)
	commits := map[string]bool{}
	for _, r := range runs {
		commits[r.Commit] = true
	}
	fmt.Fprintf(&b, "\nCommits: %s.\n", strings.Join(slices.Sorted(maps.Keys(commits)), ", "))
	return b.String()
}

// ledgerLine is the line of a class. Recovery is that of the runs in which the fault occurred.
func ledgerLine(b *strings.Builder, name string, runs []result) {
	shapes, recovery := map[string]bool{}, make([]float64, 0, len(runs))
	for _, r := range runs {
		shapes[r.Shape] = true
		if !r.Missed {
			recovery = append(recovery, r.Recovery)
		}
	}
	slices.Sort(recovery)
	recovered := "–"
	if len(recovery) > 0 {
		recovered = fmt.Sprintf("%.1f s, %.1f s", recovery[(len(recovery)-1)/2], recovery[len(recovery)-1])
	}
	fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s |\n", name, len(shapes), len(runs), len(runs)-len(recovery),
		count(runs, func(r result) int { return r.Acknowledged }), count(runs, func(r result) int { return r.Delivered }),
		count(runs, func(r result) int { return r.Dead }), count(runs, func(r result) int { return r.Cancelled }),
		count(runs, func(r result) int { return r.Discarded }), count(runs, func(r result) int { return r.Lost }),
		count(runs, func(r result) int { return r.Unexpected }), count(runs, twice), recovered)
}

func twice(r result) (n int) {
	for _, of := range r.Duplicates {
		n += of
	}
	return n
}

func count(runs []result, of func(result) int) (n int) {
	for _, r := range runs {
		n += of(r)
	}
	return n
}

// soakTable is the table of what an installation used during a soak.
func soakTable(s soak) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.0f minutes on `%s` at %s: %d runs, %d failed.\n\n", s.Minutes, s.Shape, s.Commit, s.Runs, s.Failed)
	b.WriteString("| what | mean | change in an hour | |\n|---|---|---|---|\n")
	for _, t := range s.Trends {
		fmt.Fprintf(&b, "| %s | %.1f | %+.1f ± %.1f | %s |\n", t.Name, t.Mean, t.Slope, t.Error, t.verdict())
	}
	return b.String()
}

// plantedTable is the table of planted bugs.
func plantedTable(bugs []found) string {
	var b strings.Builder
	b.WriteString("| bug | what it is | found by | shape | seeds | seconds |\n|---|---|---|---|---|---|\n")
	for _, f := range bugs {
		by := "**not found**"
		if f.Class != "" {
			by = "`" + f.Class + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %d | %.0f |\n", f.Bug, f.What, by, f.Shape, f.Seeds, f.Seconds)
	}
	return b.String()
}
