package cli

import (
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/client"
)

// statsPoint is a line of the table of 'everpost stats'.
type statsPoint struct {
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

// statsTitles are those of the columns.
func statsTitles() []string {
	return []string{
		"AT", "DELIVERED", "4XX", "5XX", "TIMEOUT", "CONNECTION", "DNS", "TLS", "OTHER", "FIRST",
		"ENDED", "DEAD", "CANCELLED", "DISCARDED", "P50", "P95", "P99",
	}
}

// statsTable returns the rows of the table: the titles, a row for each point, and one for the totals.
func statsTable(a client.Answer) ([][]string, error) {
	stats, err := client.Decode[struct {
		Totals *statsPoint  `json:"totals"`
		Data   []statsPoint `json:"data"`
	}](a)
	if err != nil {
		return nil, err
	}
	rows := [][]string{statsTitles()}
	for i := range stats.Data {
		rows = append(rows, stats.Data[i].cells())
	}
	if stats.Totals != nil {
		rows = append(rows, stats.Totals.cells())
	}
	return rows, nil
}

func (p *statsPoint) cells() []string {
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
