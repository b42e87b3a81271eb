package lanes_test

import (
	"crypto/sha256"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func process(id string) webhook.Process {
	return webhook.Process{ID: id, Address: "127.0.0.1:1", Certificate: sha256.Sum256([]byte(id))}
}

// renew renews the leases of a process.
func renew(t *testing.T, s *storetest.Stores, p webhook.Process, release ...int) webhook.Fleet {
	t.Helper()
	if release == nil {
		release = []int{}
	}
	read, err := s.Lanes.Renew(t.Context(), p, release)
	require.NoError(t, err)
	return read
}

func owned(read webhook.Fleet, id string) (all []int) {
	for i := range read.Lanes {
		if read.Lanes[i].Owner == id {
			all = append(all, i)
		}
	}
	return all
}

// expire ends the leases of a process, which is not seen any more.
func expire(t *testing.T, s *storetest.Stores, id string) {
	t.Helper()
	for _, sql := range []string{
		`update lanes set expires_at = now() - interval '1 second' where owner = $1`,
		`update processes set seen_until = now() - interval '1 second' where id = $1`,
	} {
		_, err := s.Pool().Exec(t.Context(), sql, id)
		require.NoError(t, err)
	}
}

func TestOneProcessTakesAllLanes(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	a := process("a")
	read := renew(t, s, a)
	require.Equal(t, webhook.Lanes, read.Share)
	require.Len(t, read.Taken, webhook.Lanes)
	require.Equal(t, []webhook.Process{a}, read.Processes)
	for i := range read.Lanes {
		require.Equal(t, webhook.Lane{Owner: "a", Epoch: 1}, read.Lanes[i])
	}
	require.Equal(t, time.Hour, read.Taken[0].EndedAgo, "it had no owner before")
	require.Empty(t, renew(t, s, a).Taken)
}

func TestLanesAreShared(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	a, b, c := process("a"), process("b"), process("c")
	renew(t, s, a)
	require.Empty(t, renew(t, s, b).Taken, "a has them all")
	read := renew(t, s, a)
	require.Equal(t, 32, read.Share)
	release := owned(read, "a")[32:]
	renew(t, s, a, release...)
	read = renew(t, s, b)
	require.Equal(t, release, owned(read, "b"))
	require.Len(t, read.Taken, 32)
	require.Less(t, read.Taken[0].EndedAgo, time.Second)
	require.Equal(t, int64(2), read.Lanes[release[0]].Epoch)

	require.Equal(t, 22, renew(t, s, c).Share)
	a.Leaving = true
	require.Equal(t, 32, renew(t, s, a, owned(read, "a")...).Share, "one that leaves takes none")
	require.Empty(t, renew(t, s, a).Taken)
	require.Len(t, renew(t, s, c).Taken, 32)
}

// An outage of the database ends leases. A process that comes back has its lanes again, unless another one has taken them.
func TestLeasesThatHaveEnded(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	a, b := process("a"), process("b")
	renew(t, s, a)
	expire(t, s, "a")
	read := renew(t, s, a)
	require.Empty(t, read.Taken)
	require.Equal(t, webhook.Lane{Owner: "a", Epoch: 1}, read.Lanes[0])

	expire(t, s, "a")
	read = renew(t, s, b)
	require.Len(t, read.Taken, webhook.Lanes)
	require.InDelta(t, 1000, read.Taken[0].EndedAgo.Milliseconds(), 500)
	require.Equal(t, []webhook.Process{a, b}, read.Processes, "it may have requests under way")
	read = renew(t, s, a)
	require.Empty(t, owned(read, "a"))
	require.Equal(t, webhook.Lane{Owner: "b", Epoch: 2}, read.Lanes[0])

	_, err := s.Pool().Exec(t.Context(), `update processes set seen_until = now() - interval '61 seconds' where id = 'a'`)
	require.NoError(t, err)
	require.Equal(t, []webhook.Process{b}, renew(t, s, b).Processes)
}

// A process without an address owns no lanes. No other process waits for it, and its row is removed when it has ended.
func TestProcessWithoutLanes(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	api, a := process("api"), process("a")
	api.Address = ""
	register := func() webhook.Fleet {
		t.Helper()
		read, err := s.Lanes.Register(t.Context(), api)
		require.NoError(t, err)
		return read
	}
	require.Empty(t, register().Taken)
	read := renew(t, s, a)
	require.Equal(t, webhook.Lanes, read.Share)
	require.Len(t, read.Taken, webhook.Lanes)
	read = register()
	require.Equal(t, []webhook.Process{a, api}, read.Processes)
	require.Equal(t, webhook.Lane{Owner: "a", Epoch: 1}, read.Lanes[0])

	_, err := s.Pool().Exec(t.Context(), `update processes set seen_until = now() - interval '61 seconds' where id = 'api'`)
	require.NoError(t, err)
	require.Equal(t, []webhook.Process{a}, renew(t, s, a).Processes)
}

func TestRemovedProcess(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	a, b := process("a"), process("b")
	renew(t, s, a)
	evicted, err := s.Lanes.Evict(t.Context(), "a")
	require.NoError(t, err)
	require.False(t, evicted, "it was just seen")
	require.Equal(t, []webhook.Process{a, b}, renew(t, s, b).Processes)
	require.NoError(t, s.Lanes.Leave(t.Context(), "a"))
	require.NoError(t, s.Lanes.Leave(t.Context(), "a"))
	read := renew(t, s, b)
	require.Len(t, read.Taken, webhook.Lanes)
	require.Equal(t, []webhook.Process{b}, read.Processes)

	_, err = s.Pool().Exec(t.Context(), `update processes set seen_until = now() + interval '4900 milliseconds'`) // seen 3.1 s ago
	require.NoError(t, err)
	evicted, err = s.Lanes.Evict(t.Context(), "b")
	require.NoError(t, err)
	require.True(t, evicted)
	require.Len(t, renew(t, s, a).Taken, webhook.Lanes)
}

func TestLanesHaveOneOwner(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	var mu sync.Mutex
	takers := map[int][]string{}
	var renewing sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		renewing.Go(func() {
			for range 5 {
				read, err := s.Lanes.Renew(t.Context(), process(id), []int{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, l := range read.Taken {
					takers[l.Lane] = append(takers[l.Lane], id)
				}
				mu.Unlock()
			}
		})
	}
	renewing.Wait()
	require.Len(t, takers, webhook.Lanes)
	for l, by := range takers {
		require.Len(t, by, 1, "lane %d", l)
	}
}

// The processes that a new one has to reach are those that own lanes and were seen lately.
func TestOwners(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	owner := process("owner")
	owner.Machine = "a machine"
	renew(t, b.Stores, owner)
	gone := process("gone")
	renew(t, b.Stores, gone)
	_, err := b.Pool().Exec(t.Context(), `update processes set seen_until = now() - interval '1 second' where id = 'gone'`)
	require.NoError(t, err)
	api := process("api")
	api.Address = ""
	_, err = b.Lanes.Register(t.Context(), api)
	require.NoError(t, err)
	owners, err := b.Lanes.Owners(t.Context())
	require.NoError(t, err)
	require.Equal(t, []webhook.Process{owner}, owners)
}
