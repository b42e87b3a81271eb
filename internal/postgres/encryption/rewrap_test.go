package encryption_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/encryption"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestRewrapMovesEverySealedRow(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	older, newer := storetest.TestKEK(t, 1), storetest.TestKEK(t, 2)
	before, _ := storetest.SealedWith(t, address, older)
	endpoints := storetest.SealedEndpoints(t, before, 25)
	_, err := before.RotateSecret(t.Context(), storetest.TestActor(), "acme", endpoints[3].ID, webhook.Rotation{Grace: webhook.DefaultGrace})
	require.NoError(t, err)
	both, keys := storetest.SealedWith(t, address, newer, older)
	was, err := both.KEKUses(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{older.ID() + ": 26 signing secrets", older.ID() + ": 25 headers"}, storetest.Uses(was))

	var progress []encryption.RewrapProgress
	done, err := both.RewrapInBatches(t.Context(), storetest.TestActor(), keys, 10, func(p encryption.RewrapProgress) { progress = append(progress, p) })
	require.NoError(t, err)
	require.Equal(t, newer.ID(), done.Current)
	require.EqualValues(t, 51, done.Rows)
	require.Zero(t, done.Unreadable)
	require.Equal(t, []string{newer.ID() + ": 26 signing secrets", newer.ID() + ": 25 headers"}, storetest.Uses(done.Uses))
	require.Equal(t, []encryption.RewrapProgress{
		{"signing secrets", 10, 16}, {"signing secrets", 20, 6}, {"signing secrets", 26, 0}, {"headers", 10, 15}, {"headers", 20, 5}, {"headers", 25, 0},
	}, progress)
	require.Equal(t, []string{"keys.rewrap"}, storetest.Actions(t, both, newer.ID()))

	after, _ := storetest.SealedWith(t, address, newer)
	for i, e := range endpoints {
		target, err := after.Target(t.Context(), e.ID)
		require.NoError(t, err, "without the older key")
		require.Equal(t, fmt.Sprintf("whsec_first%d", i), target.Secrets[len(target.Secrets)-1])
		require.Equal(t, map[string]string{"X-Key": strconv.Itoa(i)}, target.Headers)
		require.Equal(t, e.Version, target.Version, "nothing of the endpoint has changed")
	}
	again, err := both.Rewrap(t.Context(), storetest.TestActor(), keys, nil)
	require.NoError(t, err)
	require.Zero(t, again.Rows)
	require.Len(t, storetest.Actions(t, both, newer.ID()), 1, "what did nothing is not noted")
}

// Whatever others do meanwhile is neither lost nor disturbed.
func TestRewrapBesideWriters(t *testing.T) {
	t.Parallel()
	const each = 12
	address := postgrestest.New(t)
	older, newer := storetest.TestKEK(t, 1), storetest.TestKEK(t, 2)
	// Not every process has got the new settings yet: this one still seals with the older key.
	lagging, _ := storetest.SealedWith(t, address, older, newer)
	endpoints := storetest.SealedEndpoints(t, lagging, 4*each)
	both, keys := storetest.SealedWith(t, address, newer, older)

	var (
		writers sync.WaitGroup
		begun   sync.WaitGroup
		halt    = make(chan struct{})
		rounds  [4]atomic.Int64 // the last round that each writer finished
	)
	for w, s := range []*storetest.Stores{both, lagging, both, lagging} {
		begun.Add(1)
		writers.Go(func() {
			for round := int64(1); ; round++ {
				for _, e := range endpoints[w*each : (w+1)*each] {
					_, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error {
						e.Headers = map[string]string{"X-Key": fmt.Sprint("round ", round)}
						return nil
					})
					if err == nil {
						_, err = s.RotateSecret(t.Context(), storetest.TestActor(), "acme", e.ID,
							webhook.Rotation{NewSecret: webhook.NewSecret{Secret: fmt.Sprint("whsec_round", round)}})
					}
					if err == nil {
						_, err = s.Target(t.Context(), e.ID)
					}
					if err != nil {
						t.Error(err)
					}
				}
				rounds[w].Store(round)
				if round == 1 {
					begun.Done()
				}
				select {
				case <-halt:
					return
				default:
				}
			}
		})
	}
	begun.Wait()
	for range 5 {
		_, err := both.RewrapInBatches(t.Context(), storetest.TestActor(), keys, 7, nil)
		require.NoError(t, err)
	}
	close(halt)
	writers.Wait()

	done, err := both.RewrapInBatches(t.Context(), storetest.TestActor(), keys, 7, nil)
	require.NoError(t, err)
	require.Equal(t, []string{newer.ID() + ": 48 signing secrets", newer.ID() + ": 48 headers"}, storetest.Uses(done.Uses))
	after, _ := storetest.SealedWith(t, address, newer)
	for i, e := range endpoints {
		target, err := after.Target(t.Context(), e.ID)
		require.NoError(t, err)
		last := rounds[i/each].Load()
		require.Equal(t, []string{fmt.Sprint("whsec_round", last)}, target.Secrets)
		require.Equal(t, map[string]string{"X-Key": fmt.Sprint("round ", last)}, target.Headers)
	}
}

// The key management service goes away in the middle: what is done is done, and the next
// run goes on from there.
func TestRewrapContinues(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	older, newer := storetest.TestKEK(t, 1), storetest.TestKEK(t, 2)
	before, _ := storetest.SealedWith(t, address, older)
	storetest.SealedEndpoints(t, before, 20)
	both, keys := storetest.SealedWith(t, address, newer, older)
	failing := keys
	failing.Rewraps = &atomic.Int64{}
	failing.Rewraps.Store(25)
	first, err := both.RewrapInBatches(t.Context(), storetest.TestActor(), failing, 10, nil)
	require.ErrorIs(t, err, storetest.ErrAway)
	require.EqualValues(t, 25, first.Rows)
	second, err := both.RewrapInBatches(t.Context(), storetest.TestActor(), keys, 10, nil)
	require.NoError(t, err)
	require.EqualValues(t, 15, second.Rows)
	require.Equal(t, []string{newer.ID() + ": 20 signing secrets", newer.ID() + ": 20 headers"}, storetest.Uses(second.Uses))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = both.RewrapInBatches(ended, storetest.TestActor(), keys, 10, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// A row that cannot be decrypted is left as it is and reported. The others are rewrapped.
func TestRewrapLeavesUnreadableRows(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	lost, older, newer := storetest.TestKEK(t, 1), storetest.TestKEK(t, 2), storetest.TestKEK(t, 3)
	unknown, _ := storetest.SealedWith(t, address, lost)
	storetest.SealedEndpoints(t, unknown, 1)
	before, _ := storetest.SealedWith(t, address, older)
	endpoints := storetest.SealedEndpoints(t, before, 3)
	// The wrapped key is whole, the secret is not: it would still be lost, but with a name that says it is in order.
	_, err := before.Pool().Exec(t.Context(), `update endpoint_secrets set ciphertext = '\x00' || ciphertext where endpoint_id = $1`, [16]byte(endpoints[1].ID))
	require.NoError(t, err)

	both, keys := storetest.SealedWith(t, address, newer, older)
	done, err := both.Rewrap(t.Context(), storetest.TestActor(), keys, nil)
	require.NoError(t, err)
	require.EqualValues(t, 5, done.Rows)
	require.EqualValues(t, 3, done.Unreadable)
	require.Len(t, done.Named, 3)
	require.Contains(t, fmt.Sprint(done.Named), "signing secrets of "+endpoints[1].ID.String()+" ("+older.ID()+"): cannot be decrypted")
	require.NotContains(t, fmt.Sprint(done.Named), "whsec_")
	require.ElementsMatch(t, []string{
		lost.ID() + ": 1 signing secrets", older.ID() + ": 1 signing secrets", newer.ID() + ": 2 signing secrets",
		lost.ID() + ": 1 headers", newer.ID() + ": 3 headers",
	}, storetest.Uses(done.Uses))
	_, err = unknown.Endpoint(t.Context(), "acme", endpoints[0].ID)
	require.Error(t, err, "it does not know the newer key")
}

// Locked rows are skipped, without waiting.
func TestRewrapSkipsLockedRows(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	older, newer := storetest.TestKEK(t, 1), storetest.TestKEK(t, 2)
	before, _ := storetest.SealedWith(t, address, older)
	endpoints := storetest.SealedEndpoints(t, before, 3)
	both, keys := storetest.SealedWith(t, address, newer, older)
	tx, err := before.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select from endpoints where id = $1 for no key update`, [16]byte(endpoints[1].ID))
	require.NoError(t, err)

	done, err := both.Rewrap(t.Context(), storetest.TestActor(), keys, nil)
	require.NoError(t, err)
	require.EqualValues(t, 5, done.Rows)
	require.ElementsMatch(t, []string{newer.ID() + ": 3 signing secrets", older.ID() + ": 1 headers", newer.ID() + ": 2 headers"}, storetest.Uses(done.Uses))
	require.NoError(t, tx.Rollback(t.Context()))
	done, err = both.Rewrap(t.Context(), storetest.TestActor(), keys, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, done.Rows)
}

// Whatever gets a wrapped key one day has to be rewrapped, too.
func TestEverySealedPlaceIsKnown(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	var known []string
	for _, p := range encryption.SealedPlaces() {
		for _, column := range []string{"kek_id", "wrapped_key", "nonce", "ciphertext"} {
			known = append(known, p.Table+"."+p.Prefix+column)
		}
	}
	found := storetest.Query[string](t, s, `
		select table_name || '.' || column_name from information_schema.columns join information_schema.tables using (table_schema, table_name)
		where table_schema = current_schema() and table_type = 'BASE TABLE' and (column_name ~ '(kek_id|wrapped_key|nonce|ciphertext)$')
			and table_name <> 'request_keys'`) // answers that are kept for a quarter of an hour
	require.ElementsMatch(t, known, found)

	e := storetest.TestEndpoint("acme")
	e.Headers, e.Auth = map[string]string{"X-Key": "1"}, webhook.Auth{Kind: webhook.AuthBearer, Token: "1"}
	_, err := s.CreateEndpoint(t.Context(), storetest.TestActor(), e, storetest.CanarySecret)
	require.NoError(t, err)
	_, err = s.Notifications.TokenOf(t.Context(), webhook.NewChannelID(), "ops@example.com")
	require.NoError(t, err)
	all, err := s.KEKUses(t.Context())
	require.NoError(t, err)
	var counted []string
	for _, p := range encryption.SealedPlaces() {
		counted = append(counted, "test: 1 "+p.What)
	}
	require.Equal(t, counted, storetest.Uses(all), "the view counts them all")
}
