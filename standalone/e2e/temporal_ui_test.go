package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/receivertest"
)

// webUI is an instance of its own with deliveries in all states, for what docs/temporal-ui.md says. On the shared
// instance a signal to a shared workflow would reach the deliveries of other tests.
type webUI struct {
	*bundle

	r      *receiver
	engine client.Client
	made   int // endpoints, each of a path and a type of its own
}

func setupWebUI(t *testing.T) *webUI {
	t.Helper()
	in := ownInstance(t, nil)
	return &webUI{bundle: newBundle(t, in, in.client(), "acme"), r: newReceiver(t), engine: in.temporal(t)}
}

// tableOf reads the table in a section of docs/temporal-ui.md: the cells of each row, without the marks of code.
func tableOf(t *testing.T, section string) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/temporal-ui.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	require.True(t, found, "no section %s", section)
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
			}
			rows = append(rows, cells)
		}
	}
	require.Greater(t, len(rows), 2, "no table in %s", section)
	return rows[2:]
}

// point makes an endpoint whose receiver answers with these steps, and then well. A failed delivery waits for an hour.
func (u *webUI) point(steps ...receivertest.Step) (ep endpoint, kind string) {
	u.t.Helper()
	u.made++
	path := "/" + strconv.Itoa(u.made)
	kind = "order.no" + strconv.Itoa(u.made)
	u.r.Script(path, steps...)
	return u.endpoint(u.r, path, fieldsOf{"event_types": []string{kind}, "retry_policy": patiently()}), kind
}

// open is a delivery that has failed once and waits in its own workflow.
func (u *webUI) open() delivery {
	u.t.Helper()
	_, kind := u.point(receivertest.Step{Status: http.StatusServiceUnavailable})
	return u.waitIn(kind, "retrying")
}

// deadLetter is a delivery that was refused.
func (u *webUI) deadLetter() delivery {
	u.t.Helper()
	_, kind := u.point(receivertest.Step{Status: http.StatusBadRequest})
	return u.waitIn(kind, "dead_lettered")
}

// waitIn posts an event, and waits until its delivery is in the state, with a workflow of its own.
func (u *webUI) waitIn(kind, state string) delivery {
	u.t.Helper()
	_, d := u.postOne(kind, `{}`)
	d = u.waitState(d.ID, state)
	require.Equal(u.t, workflowID(d), d.WorkflowID)
	u.waitDetails(d.WorkflowID, "**"+state+"**")
	return d
}

// waitDetails waits until the Web UI says something of a workflow.
func (u *webUI) waitDetails(workflow, words string) {
	u.t.Helper()
	ctx := contextFor(u.t, patience)
	eventually(ctx, u.t, func() string {
		said, err := detailsOf(ctx, u.engine, workflow)
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(said, words) {
			return "the details do not say " + words + ": " + said
		}
		return ""
	})
}

// shared are deliveries that wait for their retry in one shared workflow.
func (u *webUI) shared() (workflow string, members []delivery) {
	u.t.Helper()
	return u.together(http.StatusServiceUnavailable, "retrying", "fanout/")
}

// sharedDeadLetters are dead letters that share a workflow.
func (u *webUI) sharedDeadLetters() (workflow string, members []delivery) {
	u.t.Helper()
	return u.together(http.StatusBadRequest, "dead_lettered", "dead/")
}

// together are deliveries that got an answer, are in a state, and share a workflow of a kind.
func (u *webUI) together(answer int, state, prefix string) (workflow string, members []delivery) {
	u.t.Helper()
	u.made++
	kind := "shared.no" + strconv.Itoa(u.made)
	for n := range 10 {
		path := fmt.Sprintf("/%d/%d", u.made, n)
		u.r.Script(path, receivertest.Step{Status: http.StatusServiceUnavailable}, receivertest.Step{Status: answer})
		u.endpoint(u.r, path, fieldsOf{"event_types": []string{kind}, "retry_policy": patiently()})
	}
	for _, d := range u.post(kind, `{}`).Deliveries {
		u.waitState(d.ID, "retrying") // so that the next requests are not eager, and their deliveries share a workflow
	}
	for _, d := range u.post(kind, `{}`).Deliveries {
		if d = u.waitState(d.ID, state); !strings.HasPrefix(d.WorkflowID, prefix) || workflow != "" && d.WorkflowID != workflow {
			continue
		}
		workflow, members = d.WorkflowID, append(members, d)
	}
	require.GreaterOrEqual(u.t, len(members), 2)
	u.waitDetails(workflow, members[0].ID)
	return workflow, members
}

// everyRun are the workflow ids of all runs that a list filter finds, sorted: an id is there as often as runs of it are.
func everyRun(ctx context.Context, t *testing.T, engine client.Client, filter string) []string {
	t.Helper()
	ids := workflowsBy(ctx, t, engine, filter)
	require.Less(t, len(ids), 100, "there are more than were read")
	slices.Sort(ids)
	return ids
}

// Every list filter of the page is one that Temporal takes, and finds what the page says.
func TestListFiltersOfTheWebUI(t *testing.T) {
	t.Parallel()
	u := setupWebUI(t)
	well, kind := u.point()
	delivered := u.waitDelivered(kind)
	waits := u.open()
	ep, kind := u.point()
	scheduledEndpoint := ep.ID
	_, scheduled := u.postOne(kind, `{}`, "deliver_at", strconv.Quote(at(time.Now().Add(48*time.Hour))))
	scheduled = u.waitScheduled(scheduled.ID)
	_, members := u.shared()
	all, shared, ofEvent := u.workflowsOf(members[0])

	letters := u.sevenDeadLetters()
	cancelled, discarded, terminated, fixed := u.open(), u.deadLetter(), u.open(), u.open()
	u.command(http.StatusAccepted, cancelled.ID, "cancel", nil)
	u.ask(http.StatusAccepted, http.MethodPost, "/dead-letters/"+discarded.ID+"/discard", nil, nil)
	require.NoError(t, u.engine.TerminateWorkflow(t.Context(), terminated.WorkflowID, "", "by hand"))
	u.command(http.StatusAccepted, fixed.ID, "retry", nil)
	u.waitState(cancelled.ID, "cancelled")
	u.waitState(discarded.ID, "discarded")
	u.waitState(fixed.ID, "delivered")
	replayed := u.makeReplay(fieldsOf{"source": "dead_letters", "event_type": "no.such"})

	ids := func(all ...delivery) (ids []string) {
		for _, d := range all {
			ids = append(ids, d.WorkflowID)
		}
		return ids
	}
	retrying := append(ids(waits), all...)
	want := map[string][]string{
		"all of an event":                                                {delivered.WorkflowID},
		"the shared workflows of an event":                               ofEvent,
		"the deliveries to an endpoint":                                  {delivered.WorkflowID},
		"what still runs for an endpoint":                                ids(scheduled),
		"all of a tenant":                                                nil, // all of them
		"all events of a kind":                                           ids(scheduled),
		"deliveries that wait for a retry":                               retrying,
		"those of a tenant":                                              retrying,
		"dead letters":                                                   ids(letters...),
		"dead letters of an endpoint":                                    ids(letters...),
		"what was cancelled or discarded":                                ids(cancelled, discarded),
		"replays":                                                        {replayed.WorkflowID},
		"workflows that a person terminated":                             ids(terminated),
		"what was delivered after a retry or a replay":                   ids(fixed),
		"shared workflows in which a delivery waits for a retry":         shared,
		"deliveries that are scheduled, or wait for their first attempt": ids(scheduled),
	}
	values := map[string]map[string]string{ // in place of what is in <>
		"":                                 {"<event>": delivered.EventID, "<endpoint>": well.ID, "<tenant>": u.tenant},
		"the shared workflows of an event": {"<event>": members[0].EventID},
		"what still runs for an endpoint":  {"<endpoint>": scheduledEndpoint},
		"all events of a kind":             {"'invoice.'": "'" + scheduled.EventType + "'"},
		"dead letters of an endpoint":      {"<endpoint>": letters[0].EndpointID},
	}
	ctx, rows := contextFor(t, patience), tableOf(t, "List filters")
	require.Len(t, rows, len(want), "each filter of the page is tested")
	for _, row := range rows {
		expected, known := want[row[0]]
		require.True(t, known, row[0])
		filter := row[1]
		for _, of := range []string{row[0], ""} {
			for placeholder, value := range values[of] {
				filter = strings.ReplaceAll(filter, placeholder, value)
			}
		}
		require.NotContains(t, filter, "<", row[0])
		slices.Sort(expected)
		eventually(ctx, t, func() string { // visibility lags
			found := everyRun(ctx, t, u.engine, filter)
			if row[0] == "all of a tenant" && len(found) > len(letters)+len(all) || slices.Equal(found, expected) {
				return ""
			}
			return fmt.Sprintf("%s: %s finds %q, not %q", row[0], filter, found, expected)
		})
	}
}

// waitDelivered posts an event, and waits until its delivery and its workflow have ended.
func (u *webUI) waitDelivered(kind string) delivery {
	u.t.Helper()
	e, d := u.postOne(kind, `{}`)
	d = u.waitState(d.ID, "delivered")
	u.awaitWorkflow(contextFor(u.t, patience), u.engine, d.WorkflowID)
	d.EventID = e.ID
	return d
}

// workflowsOf are the workflows of all deliveries of a type, the shared ones among them, and those of one event.
func (u *webUI) workflowsOf(one delivery) (all, shared, ofEvent []string) {
	u.t.Helper()
	seen := map[string]bool{}
	for _, d := range u.listDeliveries(url.Values{"event_type": {one.EventType}}) {
		if seen[d.WorkflowID] {
			continue
		}
		seen[d.WorkflowID] = true
		all = append(all, d.WorkflowID)
		if isShared(d.WorkflowID) {
			shared = append(shared, d.WorkflowID)
			if d.EventID == one.EventID {
				ofEvent = append(ofEvent, d.WorkflowID)
			}
		}
	}
	return all, shared, ofEvent
}

// sevenDeadLetters are seven dead letters of one endpoint. Two of them were replayed before, and one is a dead
// letter for the second time.
func (u *webUI) sevenDeadLetters() (letters []delivery) {
	u.t.Helper()
	_, kind := u.point(slices.Repeat([]receivertest.Step{{Status: http.StatusBadRequest}}, 9)...)
	for range 7 {
		letters = append(letters, u.waitIn(kind, "dead_lettered"))
	}
	for i := range 2 {
		u.command(http.StatusAccepted, letters[i].ID, "replay", nil)
		eventually(contextFor(u.t, patience), u.t, func() string {
			if letters[i] = u.delivery(letters[i].ID); letters[i].Run != 2 || letters[i].State != "dead_lettered" {
				return "the replayed one is " + letters[i].State
			}
			return ""
		})
	}
	return letters
}
