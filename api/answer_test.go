package api

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// slowClient accepts bytes at a rate, after a pause at one place. Its time is that of a synctest.
type slowClient struct {
	*httptest.ResponseRecorder

	rate     int // bytes per second
	pauseAt  int // after so many bytes
	pause    time.Duration
	read     int
	deadline time.Time
}

func (c *slowClient) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *slowClient) Write(p []byte) (int, error) {
	takes := time.Duration(len(p)) * time.Second / time.Duration(c.rate)
	if c.pause > 0 && c.read >= c.pauseAt {
		takes, c.pause = takes+c.pause, 0
	}
	if left := time.Until(c.deadline); takes > left {
		<-time.After(max(left, 0))
		return 0, os.ErrDeadlineExceeded
	}
	<-time.After(takes)
	c.read += len(p)
	return len(p), nil
}

func TestTheReaderOfAnAnswerKeepsAPace(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	for name, c := range map[string]struct {
		client slowClient
		cut    time.Duration // 0: it is not cut off
	}{
		"reads fast":                      {slowClient{rate: 100 << 20}, 0},
		"reads at the pace":               {slowClient{rate: 64 << 10}, 0},
		"reads nothing":                   {slowClient{rate: 1}, 2 * time.Second},
		"reads too slowly":                {slowClient{rate: 48 << 10}, 5 * time.Second},
		"reads fast, then stops":          {slowClient{rate: 100 << 20, pauseAt: 2 << 20, pause: time.Hour}, 10 * time.Second},
		"reads fast, with a pause":        {slowClient{rate: 100 << 20, pauseAt: 2 << 20, pause: 9 * time.Second}, 0},
		"reads at the pace, with a pause": {slowClient{rate: 64 << 10, pauseAt: 2 << 20, pause: 3 * time.Second}, 34 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, begun := c.client, time.Now()
				client.ResponseRecorder = httptest.NewRecorder()
				n, err := newPacedWriter(&client).Write(make([]byte, size))
				if c.cut == 0 {
					require.NoError(t, err)
					require.Equal(t, size, n)
					return
				}
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Less(t, n, size)
				require.InDelta(t, c.cut.Seconds(), time.Since(begun).Seconds(), 2)
			})
		})
	}
}

// Room for answers is bounded for each tenant and for all, and an answer that is larger than its room is written all the same.
func TestRoomForAnswers(t *testing.T) {
	t.Parallel()
	all := newAnswers()
	room := func(tenant string) *answerRoom { return &answerRoom{of: all, tenant: tenant} }
	var rooms []*answerRoom
	for range 16 {
		r := room("acme")
		require.NoError(t, r.reserve(maxPageBytes))
		rooms = append(rooms, r)
	}
	err := room("acme").reserve(maxPageBytes)
	require.Equal(t, webhook.CodeRateLimited, webhook.CodeOf(err))
	rooms[0].fit(100)
	require.Equal(t, 1, rooms[0].held)
	require.Error(t, room("acme").reserve(maxPageBytes))
	rooms[1].fit(3 << 20)
	require.Equal(t, 48, rooms[1].held)
	rooms[1].release()
	rooms[1].release()
	require.NoError(t, rooms[1].reserve(maxPageBytes))
	for _, tenant := range []string{"b", "c", "d", "e", "f", "g"} {
		r := room(tenant)
		for r.reserve(maxPageBytes) == nil {
		}
		rooms = append(rooms, r)
	}
	require.NoError(t, room("next").reserve(maxPageBytes), "there is room for the next tenant")
	require.LessOrEqual(t, all.budget.InUse()*answerStep, maxProcessAnswers)
	small := room("acme")
	small.fit(answerStep)
	require.Zero(t, small.held, "a small answer needs no room")
}

func TestPagesEndBeforeTheyAreTooLarge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sizes []int
		want  int // entries
	}{
		"none":             {nil, 0},
		"small ones":       {[]int{1, 1, 1}, 3},
		"a very large one": {[]int{5 << 20, 1}, 1},
		"until it is full": {[]int{400 << 10, 400 << 10, 400 << 10}, 2},
	} {
		var page pageWriter
		n := 0
		for _, size := range c.sizes {
			added, err := page.add(strings.Repeat("x", size))
			require.NoError(t, err)
			if !added {
				break
			}
			n++
		}
		require.Equal(t, c.want, n, name)
		var read struct {
			Data []string `json:"data"`
			Next *string  `json:"next_cursor"`
		}
		require.NoError(t, json.Unmarshal(page.end("abc"), &read), name)
		require.Len(t, read.Data, c.want)
		require.Equal(t, "abc", *read.Next)
	}
}
