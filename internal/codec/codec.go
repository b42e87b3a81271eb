// Package codec encrypts what workflows keep in Temporal: inputs, results, signals and texts of errors. It does not
// encrypt search attributes, which Temporal has to read, nor names and ids of workflows.
package codec

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/everpost/everpost/internal/cache"
	"github.com/everpost/everpost/internal/vault"
)

// The metadata of an encrypted payload. They are in histories, so they must not change.
const (
	encoding  = "binary/encrypted"
	metaKEK   = "everpost-kek-id"
	metaKey   = "everpost-data-key" // wrapped by the key-encryption key
	purpose   = "everpost history payload"
	keyLife   = time.Hour   // so 2^32 payloads are out of reach
	keyPause  = time.Minute // before the next try for a new key
	keysKept  = 4096        // opened data keys: those of five processes for a month
	openLimit = 15 * time.Second
)

// Codec encrypts payloads with data keys that the vault wraps, and decrypts them. It is safe for concurrent use.
type Codec struct {
	vault    *vault.Vault
	encrypts bool
	now      func() time.Time

	current atomic.Pointer[sealing]
	renewal sync.Mutex

	mu     sync.Mutex
	opened *cache.Map[string, *vault.DataKey] // by id and wrapped form
}

var _ converter.PayloadCodec = (*Codec)(nil)

// sealing is the data key that encrypts until a time.
type sealing struct {
	key   *vault.DataKey
	until time.Time
}

// New returns a codec. It decrypts with any key of the vault; without encrypts it leaves what it encodes as it is.
func New(keys *vault.Vault, encrypts bool) *Codec {
	return &Codec{vault: keys, encrypts: encrypts, now: time.Now, opened: cache.NewMap[string, *vault.DataKey](keysKept)}
}

// Encode encrypts payloads.
func (c *Codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	if !c.encrypts || len(payloads) == 0 {
		return payloads, nil
	}
	key, err := c.sealingKey()
	if err != nil {
		return nil, fmt.Errorf("encrypt a payload: %w", err)
	}
	encoded := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("encrypt a payload: %w", err)
		}
		sealed, err := key.Seal(plain, purpose)
		if err != nil {
			return nil, fmt.Errorf("encrypt a payload: %w", err)
		}
		encoded[i] = &commonpb.Payload{Data: sealed, Metadata: map[string][]byte{
			converter.MetadataEncoding: []byte(encoding), metaKEK: []byte(key.KEKID), metaKey: key.Wrapped,
		}}
	}
	return encoded, nil
}

// Decode decrypts the payloads that are encrypted. Others, such as a signal sent by hand, stay as they are.
func (c *Codec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	decoded := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if !isEncrypted(p) {
			decoded[i] = p
			continue
		}
		key, err := c.openingKey(string(p.GetMetadata()[metaKEK]), p.GetMetadata()[metaKey])
		if err != nil {
			return nil, fmt.Errorf("decrypt a payload: %w", err)
		}
		plain, err := key.Open(p.GetData(), purpose)
		if err != nil {
			return nil, fmt.Errorf("decrypt a payload: %w", err)
		}
		decoded[i] = &commonpb.Payload{}
		if err := proto.Unmarshal(plain, decoded[i]); err != nil {
			return nil, fmt.Errorf("decrypt a payload: %w", err)
		}
	}
	return decoded, nil
}

// sealingKey returns the key that encrypts now. While the key management service is away the last one is used longer.
func (c *Codec) sealingKey() (*vault.DataKey, error) {
	last := c.current.Load()
	switch {
	case last == nil:
		c.renewal.Lock()
	case c.now().Before(last.until) || !c.renewal.TryLock(): // another one renews it
		return last.key, nil
	}
	defer c.renewal.Unlock()
	if last = c.current.Load(); last != nil && c.now().Before(last.until) {
		return last.key, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openLimit)
	defer cancel()
	key, err := c.vault.NewDataKey(ctx)
	switch {
	case err == nil:
		c.current.Store(&sealing{key, c.now().Add(keyLife)})
		c.keep(key)
		return key, nil
	case last != nil:
		c.current.Store(&sealing{last.key, c.now().Add(keyPause)})
		return last.key, nil
	}
	return nil, err
}

func (c *Codec) openingKey(kekID string, wrapped []byte) (*vault.DataKey, error) {
	c.mu.Lock()
	key, ok := c.opened.Get(nameOf(kekID, wrapped), c.now())
	c.mu.Unlock()
	if ok {
		return key, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openLimit)
	defer cancel()
	key, err := c.vault.OpenDataKey(ctx, kekID, wrapped)
	if err != nil {
		return nil, err
	}
	c.keep(key)
	return key, nil
}

func (c *Codec) keep(key *vault.DataKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened.Put(nameOf(key.KEKID, key.Wrapped), key, c.now())
}

func nameOf(kekID string, wrapped []byte) string { return kekID + " " + string(wrapped) }
