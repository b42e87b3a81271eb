package postgres

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

// vaultSealer is the composition root's, in short; it fails when it is told to.
type vaultSealer struct {
	*vault.Vault

	rewraps *atomic.Int64 // how many may still be made; nil for any
}

var errAway = &webhook.Error{Code: webhook.CodeUnavailable, Message: "the key is away"}

func (s vaultSealer) Seal(ctx context.Context, plaintext, additional string) (Sealed, error) {
	sealed, err := s.Vault.Seal(ctx, plaintext, additional)
	return Sealed(sealed), err
}

func (s vaultSealer) Open(ctx context.Context, sealed Sealed, additional string) (string, error) {
	text, err := s.Vault.Open(ctx, vault.Sealed(sealed), additional)
	return text, unreadable(err)
}

func (s vaultSealer) Rewrap(ctx context.Context, sealed Sealed) (Sealed, error) {
	if s.rewraps != nil && s.rewraps.Add(-1) < 0 {
		return Sealed{}, errAway
	}
	rewrapped, err := s.Vault.Rewrap(ctx, vault.Sealed(sealed))
	return Sealed(rewrapped), unreadable(err)
}

func unreadable(err error) error {
	if errors.Is(err, vault.ErrTampered) || errors.Is(err, vault.ErrUnknownKEK) {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return err
}

func testKEK(t *testing.T, seed byte) vault.KEK {
	t.Helper()
	kek, err := vault.ParseOldKEK(base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{seed}, 31), 0)))
	require.NoError(t, err)
	return kek
}

// sealedWith opens a store that seals with the first key and reads with all.
func sealedWith(t *testing.T, address string, current vault.KEK, older ...vault.KEK) (*stores, vaultSealer) {
	t.Helper()
	keys := vaultSealer{Vault: vault.New(current, older...)}
	s, err := openStores(t.Context(), Config{URL: address, MaxConns: 8, Sealer: keys, MakeSecret: testSecret})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, keys
}

// sealedEndpoints makes endpoints of acme, each with a secret and headers of its own.
func sealedEndpoints(t *testing.T, s *stores, n int) []webhook.Endpoint {
	t.Helper()
	_, _, err := s.PutTenant(t.Context(), testActor(), webhook.Tenant{ID: "acme", Name: "Acme"})
	require.NoError(t, err)
	made := make([]webhook.Endpoint, n)
	for i := range made {
		e := testEndpoint("acme")
		e.Headers = map[string]string{"X-Key": strconv.Itoa(i)}
		made[i], err = s.CreateEndpoint(t.Context(), testActor(), e, fmt.Sprintf("whsec_first%d", i))
		require.NoError(t, err)
	}
	return made
}

// uses is Uses as text.
func uses(all []KEKUse) (texts []string) {
	for _, u := range all {
		texts = append(texts, fmt.Sprintf("%s: %d %s", u.KEKID, u.Rows, u.What))
	}
	return texts
}

func TestRewrapMovesEverySealedRow(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	older, newer := testKEK(t, 1), testKEK(t, 2)
	before, _ := sealedWith(t, address, older)
	endpoints := sealedEndpoints(t, before, 25)
	_, err := before.RotateSecret(t.Context(), testActor(), "acme", endpoints[3].ID, webhook.Rotation{Grace: webhook.DefaultGrace})
	require.NoError(t, err)
	both, keys := sealedWith(t, address, newer, older)
	was, err := both.KEKUses(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{older.ID() + ": 26 signing secrets", older.ID() + ": 25 headers"}, uses(was))

	var told []RewrapProgress
	done, err := both.rewrap(t.Context(), testActor(), keys, 10, func(p RewrapProgress) { told = append(told, p) })
	require.NoError(t, err)
	require.Equal(t, newer.ID(), done.Current)
	require.EqualValues(t, 51, done.Rows)
	require.Zero(t, done.Unreadable)
	require.Equal(t, []string{newer.ID() + ": 26 signing secrets", newer.ID() + ": 25 headers"}, uses(done.Uses))
	require.Equal(t, []RewrapProgress{
		{"signing secrets", 10, 16}, {"signing secrets", 20, 6}, {"signing secrets", 26, 0}, {"headers", 10, 15}, {"headers", 20, 5}, {"headers", 25, 0},
	}, told)
	require.Equal(t, []string{"keys.rewrap"}, actions(t, both, newer.ID()))

	after, _ := sealedWith(t, address, newer)
	for i, e := range endpoints {
		target, err := after.Target(t.Context(), e.ID)
		require.NoError(t, err, "without the older key")
		require.Equal(t, fmt.Sprintf("whsec_first%d", i), target.Secrets[len(target.Secrets)-1])
		require.Equal(t, map[string]string{"X-Key": strconv.Itoa(i)}, target.Headers)
		require.Equal(t, e.Version, target.Version, "nothing of the endpoint has changed")
	}
	again, err := both.Rewrap(t.Context(), testActor(), keys, nil)
	require.NoError(t, err)
	require.Zero(t, again.Rows)
	require.Len(t, actions(t, both, newer.ID()), 1, "what did nothing is not noted")
}

// Whatever others do meanwhile is neither lost nor disturbed.
func TestRewrapBesideWriters(t *testing.T) {
	t.Parallel()
	const each = 12
	address := postgrestest.New(t)
	older, newer := testKEK(t, 1), testKEK(t, 2)
	// Not every process has got the new settings yet: this one still seals with the older key.
	lagging, _ := sealedWith(t, address, older, newer)
	endpoints := sealedEndpoints(t, lagging, 4*each)
	both, keys := sealedWith(t, address, newer, older)

	var (
		writers sync.WaitGroup
		begun   sync.WaitGroup
		halt    = make(chan struct{})
		rounds  [4]atomic.Int64 // the last round that each writer finished
	)
	for w, s := range []*stores{both, lagging, both, lagging} {
		begun.Add(1)
		writers.Go(func() {
			for round := int64(1); ; round++ {
				for _, e := range endpoints[w*each : (w+1)*each] {
					_, err := s.UpdateEndpoint(t.Context(), testActor(), "acme", e.ID, func(e *webhook.Endpoint) error {
						e.Headers = map[string]string{"X-Key": fmt.Sprint("round ", round)}
						return nil
					})
					if err == nil {
						_, err = s.RotateSecret(t.Context(), testActor(), "acme", e.ID,
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
		_, err := both.rewrap(t.Context(), testActor(), keys, 7, nil)
		require.NoError(t, err)
	}
	close(halt)
	writers.Wait()

	done, err := both.rewrap(t.Context(), testActor(), keys, 7, nil)
	require.NoError(t, err)
	require.Equal(t, []string{newer.ID() + ": 48 signing secrets", newer.ID() + ": 48 headers"}, uses(done.Uses))
	after, _ := sealedWith(t, address, newer)
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
func TestRewrapGoesOn(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	older, newer := testKEK(t, 1), testKEK(t, 2)
	before, _ := sealedWith(t, address, older)
	sealedEndpoints(t, before, 20)
	both, keys := sealedWith(t, address, newer, older)
	failing := keys
	failing.rewraps = &atomic.Int64{}
	failing.rewraps.Store(25)
	first, err := both.rewrap(t.Context(), testActor(), failing, 10, nil)
	require.ErrorIs(t, err, errAway)
	require.EqualValues(t, 25, first.Rows)
	second, err := both.rewrap(t.Context(), testActor(), keys, 10, nil)
	require.NoError(t, err)
	require.EqualValues(t, 15, second.Rows)
	require.Equal(t, []string{newer.ID() + ": 20 signing secrets", newer.ID() + ": 20 headers"}, uses(second.Uses))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = both.rewrap(ended, testActor(), keys, 10, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// What does not open is left as it is and named; the rest is moved.
func TestRewrapLeavesWhatDoesNotOpen(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	lost, older, newer := testKEK(t, 1), testKEK(t, 2), testKEK(t, 3)
	unknown, _ := sealedWith(t, address, lost)
	sealedEndpoints(t, unknown, 1)
	before, _ := sealedWith(t, address, older)
	endpoints := sealedEndpoints(t, before, 3)
	// The wrapped key is whole, the secret is not: it would still be lost, but with a name that says it is well.
	_, err := before.login.Exec(t.Context(), `update endpoint_secrets set ciphertext = '\x00' || ciphertext where endpoint_id = $1`, [16]byte(endpoints[1].ID))
	require.NoError(t, err)

	both, keys := sealedWith(t, address, newer, older)
	done, err := both.Rewrap(t.Context(), testActor(), keys, nil)
	require.NoError(t, err)
	require.EqualValues(t, 5, done.Rows)
	require.EqualValues(t, 3, done.Unreadable)
	require.Len(t, done.Named, 3)
	require.Contains(t, fmt.Sprint(done.Named), "signing secrets of "+endpoints[1].ID.String()+" ("+older.ID()+"): cannot be decrypted")
	require.NotContains(t, fmt.Sprint(done.Named), "whsec_")
	require.ElementsMatch(t, []string{
		lost.ID() + ": 1 signing secrets", older.ID() + ": 1 signing secrets", newer.ID() + ": 2 signing secrets",
		lost.ID() + ": 1 headers", newer.ID() + ": 3 headers",
	}, uses(done.Uses))
	_, err = unknown.Endpoint(t.Context(), "acme", endpoints[0].ID)
	require.Error(t, err, "it does not know the newer key")
}

// A row that somebody has locked is waited for by nobody.
func TestRewrapPassesLockedRows(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	older, newer := testKEK(t, 1), testKEK(t, 2)
	before, _ := sealedWith(t, address, older)
	endpoints := sealedEndpoints(t, before, 3)
	both, keys := sealedWith(t, address, newer, older)
	tx, err := before.login.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select from endpoints where id = $1 for no key update`, [16]byte(endpoints[1].ID))
	require.NoError(t, err)

	done, err := both.Rewrap(t.Context(), testActor(), keys, nil)
	require.NoError(t, err)
	require.EqualValues(t, 5, done.Rows)
	require.ElementsMatch(t, []string{newer.ID() + ": 3 signing secrets", older.ID() + ": 1 headers", newer.ID() + ": 2 headers"}, uses(done.Uses))
	require.NoError(t, tx.Rollback(t.Context()))
	done, err = both.Rewrap(t.Context(), testActor(), keys, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, done.Rows)
}

// Whatever gets a wrapped key one day has to be rewrapped, too.
func TestEverySealedPlaceIsKnown(t *testing.T) {
	t.Parallel()
	s, _ := setupStore(t)
	var known []string
	for _, p := range sealedPlaces() {
		for _, column := range []string{"kek_id", "wrapped_key", "nonce", "ciphertext"} {
			known = append(known, p.table+"."+p.prefix+column)
		}
	}
	found := query[string](t, s, `
		select table_name || '.' || column_name from information_schema.columns join information_schema.tables using (table_schema, table_name)
		where table_schema = current_schema() and table_type = 'BASE TABLE' and (column_name ~ '(kek_id|wrapped_key|nonce|ciphertext)$')`)
	require.ElementsMatch(t, known, found)

	e := testEndpoint("acme")
	e.Headers, e.Auth = map[string]string{"X-Key": "1"}, webhook.Auth{Kind: webhook.AuthBearer, Token: "1"}
	_, err := s.CreateEndpoint(t.Context(), testActor(), e, canarySecret)
	require.NoError(t, err)
	all, err := s.KEKUses(t.Context())
	require.NoError(t, err)
	var counted []string
	for _, p := range sealedPlaces() {
		counted = append(counted, "test: 1 "+p.what)
	}
	require.Equal(t, counted, uses(all), "the view counts them all")
}
