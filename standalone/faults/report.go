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

// ledgerTable is the ledger: a line for each family of classes, and what became of everything that was acknowledged.
func ledgerTable(runs []result) string {
	byFamily := map[string][]result{}
	ran, commits := map[string]bool{}, map[string]bool{}
	for _, r := range runs {
		byFamily[familyOf(r.Class)] = append(byFamily[familyOf(r.Class)], r)
		ran[r.Class], commits[r.Commit] = true, true
	}
	var b strings.Builder
	b.WriteString("| classes | number | runs | missed | acknowledged | lost | unexpected | sent twice | recovery p50 | recovery max |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	var without []string
	for _, c := range classes() {
		if family := familyOf(c.name); len(byFamily[family]) > 0 {
			ledgerLine(&b, family, byFamily[family])
			delete(byFamily, family)
		}
		if !ran[c.name] {
			without = append(without, "`"+c.name+"`")
		}
	}
	ledgerLine(&b, "", runs)
	fmt.Fprintf(&b, "\nThe acknowledged deliveries ended as %d delivered, %d dead letters, %d cancelled and %d discarded. The runs are of %d builds.\n",
		count(runs, func(r result) int { return r.Delivered }), count(runs, func(r result) int { return r.Dead }),
		count(runs, func(r result) int { return r.Cancelled }), count(runs, func(r result) int { return r.Discarded }), len(commits))
	if len(without) > 0 {
		fmt.Fprintf(&b, "Classes without a run: %s.\n", strings.Join(without, ", "))
	}
	return b.String()
}

// familyOf is what the names of similar classes begin with: "kill-…" of "kill-api".
func familyOf(class string) string {
	if first, _, longer := strings.Cut(class, "-"); longer {
		return first + "-…"
	}
	return class
}

// ledgerLine is the line of a family, "" for all classes. Recovery is that of the runs in which the fault occurred.
func ledgerLine(b *strings.Builder, family string, runs []result) {
	names, recovery := map[string]bool{}, make([]float64, 0, len(runs))
	for _, r := range runs {
		names[r.Class] = true
		if !r.Missed {
			recovery = append(recovery, r.Recovery)
		}
	}
	label := "`" + family + "`"
	switch {
	case family == "":
		label = "**all**"
	case len(names) == 1:
		label = "`" + runs[0].Class + "`"
	}
	slices.Sort(recovery)
	median, most := "–", "–"
	if n := len(recovery); n > 0 {
		median, most = fmt.Sprintf("%.1f s", recovery[(n-1)/2]), fmt.Sprintf("%.1f s", recovery[n-1])
	}
	fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %d | %d | %d | %s | %s |\n", label, len(names), len(runs), len(runs)-len(recovery),
		count(runs, func(r result) int { return r.Acknowledged }), count(runs, func(r result) int { return r.Lost }),
		count(runs, func(r result) int { return r.Unexpected }), count(runs, twice), median, most)
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
	fmt.Fprintf(&b, "%.0f minutes on `%s`: %d runs, %d failed.\n\n", s.Minutes, s.Shape, s.Runs, s.Failed)
	b.WriteString("| what | mean | change in an hour | |\n|---|---|---|---|\n")
	for _, t := range s.Trends {
		fmt.Fprintf(&b, "| %s | %.1f | %+.1f ± %.1f | %s |\n", t.Name, t.Mean, t.Slope, t.Error, t.verdict())
	}
	return b.String()
}

// plantedTable is the table of planted bugs: a line for each class that found some.
func plantedTable(bugs []found) string {
	byClass := map[string][]string{}
	for _, f := range bugs {
		byClass[f.Class] = append(byClass[f.Class], "`"+f.Bug+"`")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d bugs, %d not found.\n\n| found by | bugs |\n|---|---|\n", len(bugs), len(byClass[""]))
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		by := "**not found**"
		if class != "" {
			by = "`" + class + "`"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", by, strings.Join(byClass[class], ", "))
	}
	return b.String()
}
