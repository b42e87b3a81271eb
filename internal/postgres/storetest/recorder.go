package storetest

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/stores"
)

// Recorder gets the plan of every statement that a store sends, and of those inside of functions, as it was executed: with the
// store's own arguments, its role and the policies of that. The server's auto_explain sends plans as notices.
type Recorder struct {
	mu   sync.Mutex
	seen []Executed
	last string // the notice that could not be read
}

// Executed is an executed statement.
type Executed struct {
	Text   string
	Blocks int // read from the cache or the disk, without those of planning
	Plan   string

	root planNode
}

type planNode struct {
	Type     string     `json:"Node Type"`          //nolint:tagliatelle // PostgreSQL's name
	Relation string     `json:"Relation Name"`      //nolint:tagliatelle // PostgreSQL's name
	Index    string     `json:"Index Name"`         //nolint:tagliatelle // PostgreSQL's name
	Cond     string     `json:"Index Cond"`         //nolint:tagliatelle // PostgreSQL's name
	Hit      int        `json:"Shared Hit Blocks"`  //nolint:tagliatelle // PostgreSQL's name
	Read     int        `json:"Shared Read Blocks"` //nolint:tagliatelle // PostgreSQL's name
	Loops    float64    `json:"Actual Loops"`       //nolint:tagliatelle // PostgreSQL's name
	Plans    []planNode `json:"Plans"`              //nolint:tagliatelle // PostgreSQL's name
}

// blocks counts those of a node with what is below it. What a common table expression changes may run after the node
// that it belongs to, and is not counted by that.
func (n *planNode) blocks() int {
	below := 0
	for i := range n.Plans {
		below += n.Plans[i].blocks()
	}
	return max(n.Hit+n.Read, below)
}

func (n *planNode) walk(visit func(*planNode)) {
	visit(n)
	for i := range n.Plans {
		n.Plans[i].walk(visit)
	}
}

// Record opens a store whose statements the recorder gets. Its login has to be a superuser, as that of tests is.
func Record(t *testing.T, address string) (*Stores, *Recorder) {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	q := u.Query()
	q.Set("session_preload_libraries", "auto_explain")
	for name, value := range map[string]string{
		"log_min_duration": "0", "log_analyze": "on", "log_buffers": "on", "log_timing": "off", "log_nested_statements": "on",
		"log_format": "json", "log_level": "notice",
	} {
		q.Set("auto_explain."+name, value)
	}
	u.RawQuery = q.Encode()
	r := &Recorder{}
	s, err := OpenStores(t.Context(), stores.Config{URL: u.String(), MaxConns: 4, Sealer: NewTestSealer(t), MakeSecret: TestSecret, Notice: r.notice})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, r
}

func (r *Recorder) notice(n *pgconn.Notice) {
	_, text, found := strings.Cut(n.Message, "plan:\n")
	if !found {
		return
	}
	var told struct {
		Text string   `json:"Query Text"` //nolint:tagliatelle // PostgreSQL's name
		Plan planNode `json:"Plan"`       //nolint:tagliatelle // PostgreSQL's name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		r.last = text
		return
	}
	r.seen = append(r.seen, Executed{Text: told.Text, Blocks: told.Plan.blocks(), Plan: text, root: told.Plan})
}

// Take returns what was executed since the last call.
func (r *Recorder) Take(t *testing.T) []Executed {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(t, r.last, "a plan cannot be read")
	seen := r.seen
	r.seen = nil
	return seen
}

var dayPartition = regexp.MustCompile(`^(events|deliveries|attempts)_\d{8}$`)

// KeyScans is of how many partitions of one table the statement has read the primary key, and how many rows it may
// have read of them without a condition.
func (e *Executed) KeyScans() (most int, unbounded []string) {
	tables := map[string]map[string]bool{}
	e.root.walk(func(n *planNode) {
		m := dayPartition.FindStringSubmatch(n.Relation)
		if m == nil || n.Loops == 0 {
			return
		}
		if strings.HasSuffix(n.Index, "_pkey") {
			if tables[m[1]] == nil {
				tables[m[1]] = map[string]bool{}
			}
			tables[m[1]][n.Relation] = true
			most = max(most, len(tables[m[1]]))
		}
		if n.Type == "Seq Scan" || n.Index != "" && n.Cond == "" && !strings.Contains(n.Type, "Bitmap") {
			unbounded = append(unbounded, n.Type+" "+n.Relation+" "+n.Index)
		}
	})
	return most, unbounded
}
