package cli

import (
	"strconv"
	"time"

	"github.com/everpost/everpost/client"
)

// statsTitles are those of the columns.
func statsTitles() []string {
	return []string{
		"AT", "DELIVERED", "4XX", "5XX", "TIMEOUT", "CONNECTION", "DNS", "TLS", "OTHER", "FIRST",
		"ENDED", "DEAD", "CANCELLED", "DISCARDED", "FILTERED", "P50", "P95", "P99",
	}
}

// statsTable returns the rows of the table: the titles, a row for each point, and one for the totals.
func statsTable(a client.Answer) ([][]string, error) {
	stats, err := decode[client.Stats](a)
	if err != nil {
		return nil, err
	}
	rows := [][]string{statsTitles()}
	for i := range stats.Data {
		rows = append(rows, cells(stats.Data[i].At.UTC().Format(time.DateTime), &stats.Data[i].StatsCounts))
	}
	return append(rows, cells("total", &stats.Totals)), nil
}

// cells are a row: of a time, or the total.
func cells(at string, counts *client.StatsCounts) []string {
	cells := []string{at}
	for _, class := range []string{"delivered", "http_4xx", "http_5xx", "timeout", "connection", "dns", "tls", "other"} {
		cells = append(cells, strconv.FormatInt(counts.Attempts[class], 10))
	}
	cells = append(cells, strconv.FormatInt(counts.FirstAttempts, 10))
	for _, state := range []string{"delivered", "dead_lettered", "cancelled", "discarded"} {
		cells = append(cells, strconv.FormatInt(counts.Ended[state], 10))
	}
	cells = append(cells, strconv.FormatInt(counts.Filtered, 10))
	for _, ms := range []*int64{counts.LatencyMS.P50, counts.LatencyMS.P95, counts.LatencyMS.P99} {
		if ms == nil {
			cells = append(cells, "-")
			continue
		}
		cells = append(cells, strconv.FormatInt(*ms, 10)+" ms")
	}
	return cells
}
