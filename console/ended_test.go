package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// linkOf is where the link with a text leads, which is the n-th of a page with it, from 0 on.
func linkOf(t *testing.T, page, text string, n int) string {
	t.Helper()
	found := regexp.MustCompile(`<a [^>]*href="([^"]+)"[^>]*>`+regexp.QuoteMeta(text)).FindAllStringSubmatch(page, -1)
	require.Greater(t, len(found), n, "%s: %s", text, said(page))
	return html.UnescapeString(found[n][1])
}

// Each group of dead letters can be sent again by itself, and each dead letter has the sender's own id.
func TestGroupsOfDeadLettersAreSentAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, "acme", `,"description":"Warehouse"`)
	for _, of := range []struct {
		id, reason string
		status     int
	}{{"order-17", "http_401", 401}, {"order-18", "max_attempts", 503}, {"order-19", "max_attempts", 503}, {"order-20", "max_attempts", 0}} {
		_, delivery := b.event(t, "acme", `{"type":"order.paid","payload":1,"external_id":"`+of.id+`"}`)
		b.tried(t, delivery, webhook.StateDeadLettered, of.reason, of.status)
	}
	u := b.loggedIn(t, "operator")
	page := u.get(t, http.StatusOK, "/console/t/acme/dead-letters?since=1h")
	for _, id := range []string{"order-17", "order-18", "order-19", "order-20"} {
		require.Contains(t, page, `<span class="soft">`+id+`<br>`)
	}
	sends := map[string]bool{}
	for n := range 2 {
		asked := u.get(t, http.StatusOK, linkOf(t, page, "Send again…", n))
		require.Contains(t, asked, `<option value="`+endpoint+`" selected>`)
		require.Contains(t, asked, `name="since" value="1h"`, "the filter of the page holds")
		for _, of := range []string{"1 dead letter again?|http_401|401", "2 dead letters again?|max_attempts|503"} {
			part := strings.Split(of, "|")
			if strings.Contains(asked, "Send "+part[0]) && strings.Contains(asked, `name="reason" value="`+part[1]+`"`) &&
				strings.Contains(asked, `name="status" value="`+part[2]+`"`) {
				sends[of] = true
			}
		}
	}
	require.Len(t, sends, 2)
	wider := u.get(t, http.StatusOK, linkOf(t, page, "Send all of this cause again…", 0))
	require.Contains(t, wider, "Send 3 dead letters again?", "no filter finds those without an answer, and the button says so")
}

// A replay says first what came of it, and leads to what it has not delivered.
func TestAReplaySaysWhatCameOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", "")
	var again, tried string
	for of, state := range map[*string]webhook.State{&again: webhook.StateDeadLettered, &tried: webhook.StateRetrying} {
		_, *of = b.event(t, "acme", `{"type":"order.paid","payload":1}`)
		b.tried(t, *of, state, "max_attempts", 503)
	}
	made := b.api(t, http.StatusAccepted, "POST", "/v1/tenants/acme/replays", `{"source":"dead_letters","event_type":"order.*"}`)
	path := "/console/t/acme/replays/" + made["id"].(string)
	u := b.loggedIn(t, "operator")
	require.NotContains(t, u.get(t, http.StatusOK, path), "at the first attempt, ", "nothing was released")

	_, later := b.event(t, "acme", `{"type":"order.paid","payload":2}`)
	b.tried(t, later, webhook.StateDeadLettered, "max_attempts", 503)
	id, err := webhook.ParseReplayID(made["id"].(string))
	require.NoError(t, err)
	b.sql(t, `update deliveries set completed_at = now() where state = 4 and created_at < $1`, createdAt(t, made))
	b.sql(t, `update replays set state = $2, total = 99, released = 99, delivered = 97, failed = 2, completed_at = now() where id = $1`,
		[16]byte(id), int(webhook.ReplayCompleted))
	page := u.get(t, http.StatusOK, path)
	require.Contains(t, page, `>completed</span> <strong>97 delivered at the first attempt, 2 not.</strong>`)
	for text, want := range map[string]string{"given up since the replay began": again, "still tried": tried} {
		to := linkOf(t, page, text, 0)
		list := u.get(t, http.StatusOK, to)
		for _, delivery := range []string{again, tried, later} {
			require.Equal(t, delivery == want, strings.Contains(list, delivery), "%s: %s", text, to)
		}
		asked, err := url.Parse(to)
		require.NoError(t, err)
		require.Equal(t, "order.*", asked.Query().Get("event_type"))
	}
}

func createdAt(t *testing.T, made map[string]any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, made["created_at"].(string))
	require.NoError(t, err)
	return at
}

// The time of an attempt is that of its end, in the sentence, in the list and in the picture; and a delivery that was given up is a dead letter.
func TestAnAttemptHasOneTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t, "acme", "")
	_, delivery := b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	b.tried(t, delivery, webhook.StateRetrying, "http_503", 503)
	of := "/v1/tenants/acme/deliveries/" + delivery
	ended, err := time.Parse(time.RFC3339Nano, b.api(t, http.StatusOK, "GET", of, "")["last_outcome"].(map[string]any)["at"].(string))
	require.NoError(t, err)
	u := b.loggedIn(t, "operator")
	page := u.get(t, http.StatusOK, "/console/t/acme/deliveries/"+delivery)
	clock := ended.UTC().Format("15:04:05 UTC")
	require.Contains(t, page, "Attempt 1 at "+clock+" got 503 Service Unavailable", "the sentence")
	require.Regexp(t, `<p>Answered <time [^>]+>`+regexp.QuoteMeta(ended.UTC().Format("2 Jan 2006, 15:04:05 UTC"))+`</time>, after 90 s`, page, "the list")
	require.Contains(t, page, "attempt 1: 503 at "+clock+", after 90 s", "the picture")

	_, given := b.event(t, "acme", `{"type":"order.paid","payload":2}`)
	b.tried(t, given, webhook.StateDeadLettered, "max_attempts", 503)
	page = u.get(t, http.StatusOK, "/console/t/acme/deliveries/"+given)
	require.Contains(t, page, `<span class="state s-dead_lettered">dead letter</span>`)
	require.Contains(t, page, "; dead letter at ", "the picture")
	require.Contains(t, u.get(t, http.StatusOK, "/console/t/acme/events"), "1 given up</span>")
}

// The tile of what waits counts what its list has.
func TestTheTileCountsItsList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, "acme", "")
	for range 2 {
		_, delivery := b.event(t, "acme", `{"type":"order.paid","payload":1}`)
		b.tried(t, delivery, webhook.StateRetrying, "http_503", 503)
	}
	_, scheduled := b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	b.tried(t, scheduled, webhook.StatePending, "", 0)
	u := b.loggedIn(t, "operator")
	page := u.get(t, http.StatusOK, "/console/t/acme/endpoints/"+endpoint)
	require.Contains(t, page, "2 to be sent again, 0 for a turn, 1 scheduled; the oldest was accepted ")
	require.Contains(t, page, "The list has those in flight, too")
	list := u.get(t, http.StatusOK, linkOf(t, page, "3</a>", 0))
	require.Equal(t, 3, strings.Count(list, "<tr data-row="))
}

// What a command has changed is on the page that follows it.
func TestThePageAfterAResume(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, "acme", "")
	_, delivery := b.event(t, "acme", `{"type":"order.paid","payload":1}`)
	b.tried(t, delivery, webhook.StateRetrying, "http_503", 503)
	u := b.loggedIn(t, "operator")
	path := "/console/t/acme/endpoints/" + endpoint
	live := func() string {
		_, part, found := strings.Cut(u.get(t, http.StatusOK, path), `<div id="live">`)
		require.True(t, found)
		return part
	}
	u.get(t, http.StatusOK, path+"/pause")
	u.post(t, http.StatusSeeOther, path+"/pause", "why", "it moves")
	part := live()
	require.Contains(t, part, "paused by hand (it moves) · by ", "open pages follow it")
	require.Contains(t, part, `/resume">Resume</a>`)
	_, held := b.event(t, "acme", `{"type":"order.paid","payload":2}`)
	b.tried(t, held, webhook.StateHeld, webhook.ReasonPaused, 503)
	waiting := func() string {
		_, text := u.do(t, http.MethodGet, "/console/t/acme/", nil)
		_, part, _ := strings.Cut(text, "What is waiting, and why")
		return part
	}
	require.Eventually(t, func() bool { return strings.Contains(waiting(), "<td>its endpoint is paused</td>") }, eventually, poll,
		"conditions are 2 s old at most")

	u.get(t, http.StatusOK, path+"/resume")
	u.post(t, http.StatusSeeOther, path+"/resume")
	part = live()
	require.Empty(t, regexp.MustCompile(`.{0,90}[Pp]aused.{0,60}`).FindAllString(part, -1))
	require.NotContains(t, part, "it moves")
	require.Contains(t, part, `/pause">Pause</a>`)
	require.Eventually(t, func() bool { return strings.Contains(waiting(), "<td>its endpoint was paused</td>") }, eventually, poll)
	page := u.get(t, http.StatusOK, "/console/t/acme/deliveries/"+held)
	require.Contains(t, page, "The endpoint is active again and this delivery is being released")
	require.Contains(t, page, "its endpoint was paused since ", "the picture")
	require.NotContains(t, page, "is paused")
}

// The form of an endpoint explains its numbers by an example, and leads to more.
func TestTheFormExplainsNumbers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	u := b.loggedIn(t, "operator")
	page := u.get(t, http.StatusOK, "/console/t/acme/endpoints/new")
	require.Contains(t, page, "With the key order-17 they are 1, 2, 3, in the header everpost-sequence")
	to, anchor, _ := strings.Cut(linkOf(t, page, "What holds for the numbers", 0), "#")
	require.Contains(t, u.get(t, http.StatusOK, to), `id="`+anchor+`"`)
}
