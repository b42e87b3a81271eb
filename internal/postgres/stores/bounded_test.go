package stores_test

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
)

const (
	// maxBlocks bounds the blocks of one statement, whatever the table's size: some 10 ms of a core if all are in memory.
	maxBlocks = 2000
	// perDay is how many deliveries a day of the test has: its largest endpoint has twice as many as a list looks at.
	perDay = 4000
)

// visit is a stop of a tour that uses all that the stores read of and write to large tables.
type visit struct {
	name string
	call func(t *testing.T, l *storetest.Large)
	// most is another bound of blocks, for what is in proportion to its batch and not to the table.
	most int
}

// No statement of the stores reads more blocks when the tables are larger: with 36 partitions, none of them analyzed as a whole, with columns
// that depend on each other, and one endpoint that has most of all.
func TestEveryStatementIsBounded(t *testing.T) {
	t.Parallel()
	made := storetest.Setup(t)
	l := storetest.Fill(t, made, perDay)
	var recorder *storetest.Recorder
	l.Stores, recorder = storetest.Record(t, made.Address)
	require.NoError(t, l.Ready(t.Context()))
	tour(t, l, recorder, maxBlocks, slices.Concat(listVisits(), pageVisits(), releaseVisits()))
	addWork(t, l)
	tour(t, l, recorder, maxBlocks, loopVisits())
}

// Plans that were made while today's partition was empty are kept until that is analyzed. It is when it has grown.
func TestPlansOfAnEmptyDayServeAFullOne(t *testing.T) {
	t.Parallel()
	made := storetest.Setup(t)
	l := storetest.FillPast(t, made, perDay)
	var recorder *storetest.Recorder
	l.Stores, recorder = storetest.Record(t, made.Address+"&plan_cache_mode=force_generic_plan")
	require.NoError(t, l.Ready(t.Context()))
	visits := slices.Concat(listVisits(), pageVisits(), loopVisits())
	addWork(t, l)
	tour(t, l, recorder, maxBlocks+20_000, visits)
	l.Perday *= 5
	l.AddToday(t)
	l.AddRecorded(t, 3000)
	n, err := l.AnalyzeGrown(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, []int{3}, storetest.Query[int](t, l.Stores, `
		select count(*)::int from unnest(array['events', 'deliveries', 'attempts']) parent
			join pg_class c on c.oid = to_regclass(parent || to_char(now() at time zone 'UTC', '_YYYYMMDD')) where c.relpages > 0`))
	tour(t, l, recorder, maxBlocks+20_000, visits)
}

// The same with a million deliveries. What looks at 20,000 rows, each on a page of its own, reads as many blocks.
func TestEveryStatementIsBoundedWithAMillionDeliveries(t *testing.T) {
	if os.Getenv("EVERPOST_TEST_LONG") == "" {
		t.Skip("fills a database for minutes: set EVERPOST_TEST_LONG")
	}
	t.Parallel()
	made := storetest.Setup(t)
	l := storetest.Fill(t, made, 32_000)
	var recorder *storetest.Recorder
	l.Stores, recorder = storetest.Record(t, made.Address)
	require.NoError(t, l.Ready(t.Context()))
	tour(t, l, recorder, maxBlocks+20_000, slices.Concat(listVisits(), pageVisits(), releaseVisits()))
	addWork(t, l)
	tour(t, l, recorder, maxBlocks, loopVisits())
}

func tour(t *testing.T, l *storetest.Large, recorder *storetest.Recorder, bound int, visits []visit) {
	t.Helper()
	var over []string
	for _, v := range visits {
		recorder.Take(t)
		begun := time.Now()
		v.call(t, l)
		took := time.Since(begun).Round(time.Millisecond)
		seen := recorder.Take(t)
		slices.SortFunc(seen, func(a, b storetest.Executed) int { return cmp.Compare(b.Blocks, a.Blocks) })
		for i, e := range seen {
			if i == 0 {
				t.Logf("%-50s %6d blocks at most of %d statements, %s", v.name, e.Blocks, len(seen), took)
			}
			if e.Blocks > max(bound, v.most) {
				over = append(over, v.name+": "+strconv.Itoa(e.Blocks)+" blocks: "+words(e.Text))
				if os.Getenv("EVERPOST_TEST_PLANS") != "" {
					t.Log(e.Plan)
				}
			}
		}
	}
	require.Empty(t, over, strings.Join(over, "\n"))
}

func words(text string) string { return strings.Join(strings.Fields(text), " ") }
