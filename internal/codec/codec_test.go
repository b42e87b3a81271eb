package codec

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/everpost/everpost/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newKEK(t testing.TB) *vault.StaticKEK {
	t.Helper()
	key := make([]byte, vault.KeyBytes)
	_, err := rand.Read(key)
	require.NoError(t, err)
	kek, err := vault.ParseKEK(base64.StdEncoding.EncodeToString(key))
	require.NoError(t, err)
	return kek
}

func payload(t testing.TB, text string) *commonpb.Payload {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayload(text)
	require.NoError(t, err)
	return p
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	kek := newKEK(t)
	plain := []*commonpb.Payload{payload(t, "canary"), {}, payload(t, "")}
	encoded, err := New(vault.New(kek), true).Encode(plain)
	require.NoError(t, err)
	require.Len(t, encoded, len(plain))
	for _, p := range encoded {
		require.Equal(t, encoding, string(p.GetMetadata()[converter.MetadataEncoding]))
		require.NotContains(t, string(p.GetData()), "canary")
	}
	// Another process decrypts it, also while it does not encrypt itself.
	decoded, err := New(vault.New(newKEK(t), kek), false).Decode(encoded)
	require.NoError(t, err)
	for i := range plain {
		require.True(t, proto.Equal(plain[i], decoded[i]))
	}
}

func TestPlainPayloadsStay(t *testing.T) {
	t.Parallel()
	plain := []*commonpb.Payload{payload(t, "by hand"), {}}
	off := New(vault.New(newKEK(t)), false)
	encoded, err := off.Encode(plain)
	require.NoError(t, err)
	require.Equal(t, plain, encoded)
	for _, c := range []*Codec{off, New(vault.New(newKEK(t)), true)} {
		decoded, err := c.Decode(plain)
		require.NoError(t, err)
		require.Equal(t, plain, decoded)
	}
}

func TestWhatCannotBeDecrypted(t *testing.T) {
	t.Parallel()
	kek := newKEK(t)
	encode := func() *commonpb.Payload {
		encoded, err := New(vault.New(kek), true).Encode([]*commonpb.Payload{payload(t, "canary")})
		require.NoError(t, err)
		return encoded[0]
	}
	_, err := New(vault.New(newKEK(t)), true).Decode([]*commonpb.Payload{encode()})
	require.ErrorIs(t, err, vault.ErrUnknownKEK)
	for _, spoil := range []func(*commonpb.Payload){
		func(p *commonpb.Payload) { p.GetData()[len(p.GetData())-1] ^= 1 },
		func(p *commonpb.Payload) { p.Data = nil },
		func(p *commonpb.Payload) { p.Metadata[metaKey] = nil },
		func(p *commonpb.Payload) { p.Metadata[metaKey] = encode().GetMetadata()[metaKey] },
	} {
		p := encode()
		spoil(p)
		_, err := New(vault.New(kek), true).Decode([]*commonpb.Payload{p})
		require.ErrorIs(t, err, vault.ErrTampered)
		require.NotContains(t, err.Error(), "canary")
	}
}

// service is a key whose management service may be away.
type service struct {
	*vault.StaticKEK

	mu    sync.Mutex
	away  error
	wraps int
}

func (s *service) Wrap(ctx context.Context, key []byte) (string, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return "", nil, s.away
	}
	s.wraps++
	return s.StaticKEK.Wrap(ctx, key)
}

func TestDataKeysAreRenewed(t *testing.T) {
	t.Parallel()
	s, now := &service{StaticKEK: newKEK(t), away: errors.New("away")}, time.Now()
	c := New(vault.New(s), true)
	c.now = func() time.Time { return now }
	encode := func() (*commonpb.Payload, error) {
		encoded, err := c.Encode([]*commonpb.Payload{payload(t, "x")})
		if err != nil {
			return nil, err
		}
		decoded, err := c.Decode(encoded)
		require.NoError(t, err)
		require.True(t, proto.Equal(payload(t, "x"), decoded[0]))
		return encoded[0], nil
	}
	_, err := encode()
	require.ErrorIs(t, err, s.away)
	s.away = nil
	var keys []string
	for _, pass := range []time.Duration{0, keyLife - 1, 1} {
		now = now.Add(pass)
		p, err := encode()
		require.NoError(t, err)
		keys = append(keys, string(p.GetMetadata()[metaKey]))
	}
	require.Equal(t, keys[0], keys[1])
	require.NotEqual(t, keys[1], keys[2])
	require.Equal(t, 2, s.wraps)

	// The service is away: the last key is used on, and a new one asked for a minute later.
	s.away = errors.New("away")
	now = now.Add(keyLife)
	p, err := encode()
	require.NoError(t, err)
	require.Equal(t, keys[2], string(p.GetMetadata()[metaKey]))
	s.away = nil
	_, err = encode()
	require.NoError(t, err)
	require.Equal(t, 2, s.wraps)
	now = now.Add(keyPause)
	p, err = encode()
	require.NoError(t, err)
	require.NotEqual(t, keys[2], string(p.GetMetadata()[metaKey]))
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	s := &service{StaticKEK: newKEK(t)}
	c := New(vault.New(s), true)
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 50 {
				encoded, err := c.Encode([]*commonpb.Payload{payload(t, "x")})
				if err == nil {
					_, err = c.Decode(encoded)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	require.Equal(t, 1, s.wraps)
}

// BenchmarkPayload encrypts and decrypts a payload of the size of a shared workflow's input of one delivery.
func BenchmarkPayload(b *testing.B) {
	c, p := New(vault.New(newKEK(b)), true), &commonpb.Payload{Data: make([]byte, 500)}
	b.ReportAllocs()
	for b.Loop() {
		encoded, err := c.Encode([]*commonpb.Payload{p})
		if err == nil {
			_, err = c.Decode(encoded)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
