package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// KEKs are the settings of the key-encryption keys for secrets at rest: the key that encrypts, and the
// keys that only decrypt until 'everpost keys rewrap' has replaced them.
type KEKs struct {
	// KEKFile and KEK set the key: a file, or the key itself, as base64 of 32 bytes.
	KEKFile string `env:"EVERPOST_KEK_FILE" help:"File with the key that encrypts secrets at rest: base64 of 32 random bytes." name:"kek-file" placeholder:"FILE" section:"keys" unset:"standalone: made in the data directory"`
	KEK     string `credential:"key" env:"EVERPOST_KEK" help:"The key itself, instead of a file." name:"kek" placeholder:"BASE64" section:"keys"`

	// KEKOldFiles and KEKOld are further keys, in the same form, that only decrypt.
	KEKOldFiles []string `env:"EVERPOST_KEK_OLD_FILES" help:"Files with further keys, separated by commas, that still decrypt secrets while 'everpost keys rewrap' replaces them." name:"kek-old-files" placeholder:"FILE" section:"keys"`
	KEKOld      []string `credential:"key" env:"EVERPOST_KEK_OLD" help:"Such keys themselves, separated by commas." name:"kek-old" placeholder:"BASE64" section:"keys"`

	// KEKLost are the ids of keys that are lost: a process starts without them.
	KEKLost []string `env:"EVERPOST_KEK_LOST" help:"Ids of keys that are permanently lost, separated by commas: a process starts although what they encrypt cannot be read." name:"kek-lost" placeholder:"ID" section:"keys"`

	// KEKVaultAddr and the following fields configure a key in the transit engine of a HashiCorp Vault, instead of a file or value.
	KEKVaultAddr      string        `env:"EVERPOST_KEK_VAULT_ADDR" help:"HashiCorp Vault whose transit engine holds the key, instead of a file: 'https://host:port'." name:"kek-vault-addr" placeholder:"URL" section:"keys" see:"security-secrets.md#hashicorp-vault"`
	KEKVaultMount     string        `default:"transit" env:"EVERPOST_KEK_VAULT_MOUNT" help:"Path of the transit engine." name:"kek-vault-mount" placeholder:"PATH" section:"keys"`
	KEKVaultKey       string        `default:"everpost" env:"EVERPOST_KEK_VAULT_KEY" help:"Name of the key in Vault." name:"kek-vault-key" placeholder:"NAME" section:"keys"`
	KEKVaultNamespace string        `env:"EVERPOST_KEK_VAULT_NAMESPACE" help:"Vault's namespace." name:"kek-vault-namespace" placeholder:"PATH" section:"keys"`
	KEKVaultToken     string        `credential:"key" env:"EVERPOST_KEK_VAULT_TOKEN" help:"Token for Vault." name:"kek-vault-token" placeholder:"SECRET" section:"keys"`
	KEKVaultTokenFile string        `env:"EVERPOST_KEK_VAULT_TOKEN_FILE" help:"File with the token for Vault instead, read again for each request." name:"kek-vault-token-file" placeholder:"FILE" section:"keys"`
	KEKVaultCAFile    string        `env:"EVERPOST_KEK_VAULT_CA_FILE" help:"File with certificates (PEM) to trust for Vault instead of the system's." name:"kek-vault-ca-file" placeholder:"FILE" section:"keys"`
	KEKVaultTimeout   time.Duration `default:"3s" env:"EVERPOST_KEK_VAULT_TIMEOUT" help:"How long one request to Vault may take." name:"kek-vault-timeout" placeholder:"DURATION" range:"100ms to 10s" section:"keys"`
	// EncryptHistories encrypts what workflows keep in Temporal, with the same key. What is encrypted is always decrypted.
	EncryptHistories bool `env:"EVERPOST_ENCRYPT_HISTORIES" help:"Encrypt what workflows keep in Temporal, with the key above; search attributes are not encrypted." name:"encrypt-histories" section:"keys" see:"security-secrets.md#workflow-histories"`
	// KEKVaultOld makes Vault's key one that only decrypts, in addition to a file or value.
	KEKVaultOld bool `env:"EVERPOST_KEK_VAULT_OLD" help:"Only decrypt with Vault's key; the key in the file or the value encrypts." name:"kek-vault-old" section:"keys"`
}

// AnyKEK reports whether a key that encrypts is set.
func (k *KEKs) AnyKEK() bool {
	return k.KEK != "" || k.KEKFile != "" || k.KEKVaultAddr != "" && !k.KEKVaultOld
}

// OwnKEKFile returns the path of the key that standalone generates in its data directory.
func OwnKEKFile(dataDir string) string { return filepath.Join(dataDir, "kek") }

// AddOwn adds the key of a data directory. It encrypts unless another key is set. Then, if its file
// exists, it only decrypts the secrets that are not rewrapped yet.
func (k *KEKs) AddOwn(file string) {
	if !k.AnyKEK() {
		k.KEKFile = file
		return
	}
	own, err := os.Stat(file)
	if err != nil {
		return
	}
	for _, known := range append([]string{k.KEKFile}, k.KEKOldFiles...) {
		if other, err := os.Stat(known); err == nil && os.SameFile(own, other) {
			return
		}
	}
	k.KEKOldFiles = append(k.KEKOldFiles, file)
}

// IsLost reports whether a key, by its stored id, is among the lost ones. KEKLost may omit the version of
// a key in Vault.
func (k *KEKs) IsLost(kekID string) bool {
	name, _, _ := strings.Cut(kekID, "#")
	return slices.Contains(k.KEKLost, kekID) || slices.Contains(k.KEKLost, name)
}

// RequireKEK trims and validates these settings alone, for a command that needs a key and few other settings. It
// is not named Validate, because the command-line parser calls every method of that name, also for
// commands that need no key.
func (k *KEKs) RequireKEK() error {
	var bad refusals
	cleanCredentials(k, &bad)
	k.validateKEKs(&bad)
	if !k.AnyKEK() && len(bad) == 0 {
		bad = append(bad, errNoKEK)
	}
	return bad.err()
}

var errNoKEK = errors.New("EVERPOST_KEK_FILE: is required (a file with the base64 of 32 random bytes, or EVERPOST_KEK with the value, " +
	"or EVERPOST_KEK_VAULT_ADDR with a Vault that holds the key)")

// validateKEKs adds errors about settings that exclude each other. The keys themselves are checked when
// they are loaded. Old keys alone are valid, because standalone has a key of its own; RequireKEK and
// RequireCluster refuse them for other commands.
func (k *KEKs) validateKEKs(bad *refusals) {
	vault := k.KEKVaultAddr != ""
	if k.KEK != "" && k.KEKFile != "" {
		bad.addf("EVERPOST_KEK", "is set together with EVERPOST_KEK_FILE; set one of them")
	}
	if vault && !k.KEKVaultOld && (k.KEK != "" || k.KEKFile != "") {
		bad.addf("EVERPOST_KEK_VAULT_ADDR", "is set together with EVERPOST_KEK_FILE or EVERPOST_KEK; only one key encrypts. "+
			"To read with Vault's key only, set EVERPOST_KEK_VAULT_OLD; with a file's, name that in EVERPOST_KEK_OLD_FILES")
	}
	for name, set := range map[string]bool{
		"EVERPOST_KEK_VAULT_OLD": k.KEKVaultOld, "EVERPOST_KEK_VAULT_TOKEN": k.KEKVaultToken != "",
		"EVERPOST_KEK_VAULT_TOKEN_FILE": k.KEKVaultTokenFile != "",
	} {
		if set && !vault {
			bad.addf(name, "is set without EVERPOST_KEK_VAULT_ADDR")
		}
	}
	if vault && (k.KEKVaultToken == "") == (k.KEKVaultTokenFile == "") {
		bad.addf("EVERPOST_KEK_VAULT_TOKEN", "either it or EVERPOST_KEK_VAULT_TOKEN_FILE is required with EVERPOST_KEK_VAULT_ADDR")
	}
	if vault {
		checkRanges(k, bad)
	}
}
