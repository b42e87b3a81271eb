package config

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
)

// maxCAFile limits a file with certificates; a system's complete list has 250 KiB.
const maxCAFile = 4 << 20

// RootCAs returns the certificates to verify receivers with: the system's, and those of CAFile. Without
// CAFile it returns nil, which stands for the system's.
func (c *Config) RootCAs() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil //nolint:nilnil // nil means the system's certificates in crypto/tls
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificates cannot be read: %w", err)
	}
	return roots, addCertificates(roots, c.CAFile)
}

// VaultRootCAs returns the certificates of KEKVaultCAFile to verify Vault with, instead of the system's.
// Without KEKVaultCAFile it returns nil, which stands for the system's.
func (k *KEKs) VaultRootCAs() (*x509.CertPool, error) {
	if k.KEKVaultCAFile == "" {
		return nil, nil //nolint:nilnil // as RootCAs
	}
	return ReadCertificates(k.KEKVaultCAFile)
}

// ReadCertificates returns all certificates of a file (PEM), of which there must be one.
func ReadCertificates(path string) (*x509.CertPool, error) {
	roots := x509.NewCertPool()
	return roots, addCertificates(roots, path)
}

// addCertificates adds all certificates of a file, of which there must be one.
func addCertificates(roots *x509.CertPool, path string) error {
	text, err := readAtMost(path, maxCAFile)
	if err != nil {
		return err
	}
	count := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		count++
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("certificate %d in %s cannot be read: %w", count, path, err)
		}
		roots.AddCert(certificate)
	}
	if begun := bytes.Count(text, []byte("-----BEGIN CERTIFICATE-----")); begun > count {
		return fmt.Errorf("%d of the %d certificates in %s cannot be read: each must end with its line -----END CERTIFICATE-----",
			begun-count, begun, path)
	}
	if count == 0 {
		return fmt.Errorf("%s holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)", path)
	}
	return nil
}

// readAtMost reads a file of limited size.
func readAtMost(path string, most int64) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, nil
}
