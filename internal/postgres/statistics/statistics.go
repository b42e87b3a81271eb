// Package statistics stores the statistics of endpoints: what workers have counted per minute, and
// the hours that are summed up from it.
package statistics

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// Statistics stores statistics.
type Statistics struct{ core *postgres.Core }

// New makes a Statistics.
func New(s *postgres.Core) *Statistics { return &Statistics{core: s} }

// AddStatistics adds the counts of a flush to the stored minutes. A flush with a sequence number that
// is not above the writer's last one is written already, and changes nothing.
func (s *Statistics) AddStatistics(ctx context.Context, f webhook.StatisticsFlush) error {
	rows := make([]*webhook.StatisticsRow, len(f.Rows))
	for i := range f.Rows {
		rows[i] = &f.Rows[i]
	}
	return s.core.AsIngest().WithConn(ctx, "add statistics", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, addMinutes, append([]any{f.Writer, f.Seq}, minuteRows.Args(rows)...)...)
		return err
	})
}

// counter is a column of the tables, and the number that it holds.
type counter struct {
	column string
	of     func(*webhook.Counts) *int64
}

// makeCounters lists all of them, in the order in which columns lists and scanInto reads them.
func makeCounters() []counter {
	var all []counter
	for i, class := range webhook.OutcomeClasses() {
		all = append(all, counter{"attempt_" + class.String(), func(c *webhook.Counts) *int64 { return &c.Attempts[i] }})
	}
	all = append(all,
		counter{"first_attempts", func(c *webhook.Counts) *int64 { return &c.FirstAttempts }},
		counter{"first_delivered", func(c *webhook.Counts) *int64 { return &c.FirstDelivered }})
	for i, state := range webhook.EndStates() {
		all = append(all, counter{"ended_" + state.String(), func(c *webhook.Counts) *int64 { return &c.Ended[i] }})
	}
	for i, bound := range webhook.LatencyBounds() {
		all = append(all, counter{"latency_" + strconv.FormatInt(bound, 10), func(c *webhook.Counts) *int64 { return &c.Latency[i] }})
	}
	return append(all,
		counter{"filter_matched", func(c *webhook.Counts) *int64 { return &c.FilterMatched }},
		counter{"filtered", func(c *webhook.Counts) *int64 { return &c.Filtered }})
}

// each joins a text for each counter; %[1]s in it is the column.
func each(text string) string {
	parts := make([]string, 0, len(counters))
	for _, c := range counters {
		parts = append(parts, fmt.Sprintf(text, c.column))
	}
	return strings.Join(parts, ", ")
}

// The statements' parts. A counter of 0 is stored as null.
//
//nolint:gochecknoglobals // constants that Go cannot write as such
var (
	counters   = makeCounters()
	columns    = each("%[1]s")
	added      = each("%[1]s = coalesce(m.%[1]s + excluded.%[1]s, m.%[1]s, excluded.%[1]s)")
	summedUp   = each("sum(m.%[1]s)::integer")
	single     = each("coalesce(m.%[1]s, 0)::bigint")
	sums       = each("coalesce(sum(m.%[1]s), 0)::bigint")
	minuteRows = rowsOf()

	// The rows are written in the order of their keys: writers that lock rows in different orders
	// would deadlock.
	addMinutes = `
	with fresh as (
		insert into statistics_writers as w (writer, seq) values ($1, $2)
		on conflict (writer) do update set seq = excluded.seq, written_at = excluded.written_at where w.seq < excluded.seq
		returning 1)
	insert into statistics_minutes as m (tenant_id, endpoint_id, at, ` + columns + `)
	select * from (` + minuteRows.Query(3) + `) counted where exists (select from fresh) order by 1, 2, 3
	on conflict (tenant_id, endpoint_id, at) do update set ` + added
)

func rowsOf() postgres.RowsOf[*webhook.StatisticsRow] {
	rows := postgres.RowsOf[*webhook.StatisticsRow]{
		postgres.Whole("tenant text", func(r *webhook.StatisticsRow) string { return r.TenantID }),
		postgres.Each("endpoint uuid", func(r *webhook.StatisticsRow) [16]byte { return r.EndpointID }),
		postgres.Each("minute timestamptz", func(r *webhook.StatisticsRow) time.Time { return r.Minute }),
	}
	for _, c := range counters {
		rows = append(rows, postgres.EachOptional("c_"+c.column+" integer", func(r *webhook.StatisticsRow) *int64 {
			if n := c.of(&r.Counts); *n != 0 {
				return n
			}
			return nil
		}))
	}
	return rows
}

// scanInto is where the columns of a row are read to.
func scanInto(c *webhook.Counts, before ...any) []any {
	for _, counter := range counters {
		before = append(before, counter.of(c))
	}
	return before
}

func scanPoint(row pgx.CollectableRow) (p webhook.StatisticsPoint, err error) {
	err = row.Scan(scanInto(&p.Counts, &p.At)...)
	p.At = p.At.UTC()
	return p, err
}

// ReadStatistics returns the points of a query, oldest first. Points without any count are left out.
func (s *Statistics) ReadStatistics(ctx context.Context, q webhook.StatisticsQuery) ([]webhook.StatisticsPoint, error) {
	statement := readMinutes
	if q.Step >= time.Hour {
		statement = readHours
	}
	return postgres.QueryAll(ctx, s.core.OfTenantOrOperator(q.TenantID), "read statistics", scanPoint, statement,
		q.TenantID, q.EndpointID, roundUp(q.Since, q.Step), roundUp(q.Until, q.Step))
}

// roundUp is the first beginning of a step at or after a time.
func roundUp(t time.Time, step time.Duration) time.Time {
	down := t.UTC().Truncate(step)
	if down.Before(t) {
		return down.Add(step)
	}
	return down
}

// An hour is read from the minutes until retention has summed it up. It does that for all endpoints
// at once, so an hour without a row either has no counts, or has all of them in its minutes.
//
//nolint:gochecknoglobals // constants that Go cannot write as such
var (
	readMinutes = `
	select m.at, ` + single + ` from statistics_minutes m
	where m.tenant_id = $1 and m.endpoint_id = $2 and m.at >= $3 and m.at < $4 order by m.at`
	readHours = `
	select m.at, ` + single + ` from statistics_hours m
	where m.tenant_id = $1 and m.endpoint_id = $2 and m.at >= $3 and m.at < $4
	union all
	select date_trunc('hour', m.at, 'UTC'), ` + sums + ` from statistics_minutes m
	where m.tenant_id = $1 and m.endpoint_id = $2 and m.at >= $3 and m.at < $4
	  and not exists (select from statistics_hours h
		where h.tenant_id = $1 and h.endpoint_id = $2 and h.at = date_trunc('hour', m.at, 'UTC'))
	group by 1 order by 1`
	readRecent = `
	select ` + sums + ` from statistics_minutes m
	where m.tenant_id = $1 and m.endpoint_id = $2 and m.at > now() - $3::bigint * interval '1 millisecond'`
	// The minutes that are kept, 2,880 at most, are read from the newest on.
	readVerdicts = `
	select coalesce(sum(matched), 0)::bigint, coalesce(sum(kept_out), 0)::bigint from (
		select coalesce(m.filter_matched, 0) as matched, coalesce(m.filtered, 0) as kept_out,
			sum(coalesce(m.filter_matched, 0) + coalesce(m.filtered, 0)) over (order by m.at desc) as since
		from endpoints e join statistics_minutes m on m.tenant_id = e.tenant_id and m.endpoint_id = e.id
		where e.tenant_id = $1 and e.id = $2 and e.filter is not null
			and m.at >= greatest(e.updated_at, now() - $3::bigint * interval '1 millisecond')) v
	where since - matched - kept_out < $4`
)

// QueueRecent queues the read of an endpoint's counts of the last webhook.HistorySpan.
func QueueRecent(b *pgx.Batch, tenantID string, id webhook.EndpointID, into *webhook.Counts) {
	b.Queue(readRecent, tenantID, id, webhook.HistorySpan.Milliseconds()).QueryRow(func(row pgx.Row) error {
		return row.Scan(scanInto(into)...)
	})
}

// QueueVerdicts queues the read of what an endpoint's filter said of its last events: of as many minutes, of those that are kept, as have
// webhook.VerdictsSeen events together. What was said before the endpoint was changed, perhaps by another filter, is left out.
func QueueVerdicts(b *pgx.Batch, tenantID string, id webhook.EndpointID, into *webhook.Counts) {
	b.Queue(readVerdicts, tenantID, id, webhook.MinutesKept.Milliseconds(), webhook.VerdictsSeen).QueryRow(func(row pgx.Row) error {
		return row.Scan(&into.FilterMatched, &into.Filtered)
	})
}
