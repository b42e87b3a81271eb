// Package stats makes the table of 'everpost stats' from the API's answer.
package stats

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// point is a line of the table.
type point struct {
	At       *time.Time     `json:"at"` // nil for the totals
	Attempts map[string]int `json:"attempts"`
	First    int            `json:"first_attempts"`
	Ended    map[string]int `json:"ended"`
	Latency  struct {
		P50 *int `json:"p50"`
		P95 *int `json:"p95"`
		P99 *int `json:"p99"`
	} `json:"latency_ms"`
}

// titles are those of the columns.
func titles() []string {
	return []string{
		"AT", "DELIVERED", "4XX", "5XX", "TIMEOUT", "CONNECTION", "DNS", "TLS", "OTHER", "FIRST",
		"ENDED", "DEAD", "CANCELLED", "DISCARDED", "P50", "P95", "P99",
	}
}

// Table returns the rows of the table: the titles, a row for each point, and one for the totals.
func Table(answer []byte) ([][]string, error) {
	var stats struct {
		Totals *point  `json:"totals"`
		Data   []point `json:"data"`
	}
	if err := json.Unmarshal(answer, &stats); err != nil {
		return nil, fmt.Errorf("read statistics: %w", err)
	}
	rows := [][]string{titles()}
	for i := range stats.Data {
		rows = append(rows, stats.Data[i].cells())
	}
	if stats.Totals != nil {
		rows = append(rows, stats.Totals.cells())
	}
	return rows, nil
}

func (p *point) cells() []string {
	at := "total"
	if p.At != nil {
		at = p.At.UTC().Format(time.DateTime)
	}
	cells := []string{at}
	for _, class := range []string{"delivered", "http_4xx", "http_5xx", "timeout", "connection", "dns", "tls", "other"} {
		cells = append(cells, strconv.Itoa(p.Attempts[class]))
	}
	cells = append(cells, strconv.Itoa(p.First))
	for _, state := range []string{"delivered", "dead_lettered", "cancelled", "discarded"} {
		cells = append(cells, strconv.Itoa(p.Ended[state]))
	}
	for _, ms := range []*int{p.Latency.P50, p.Latency.P95, p.Latency.P99} {
		if ms == nil {
			cells = append(cells, "-")
			continue
		}
		cells = append(cells, strconv.Itoa(*ms)+" ms")
	}
	return cells
}
