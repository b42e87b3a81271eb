package config

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
)

// maxCAFile limits CAFile; a system's complete list has 250 KiB.
const maxCAFile = 4 << 20

// RootCAs returns the certificates to verify receivers with: the system's, and those of CAFile. Without
// CAFile it returns nil, which stands for the system's.
func (c *Config) RootCAs() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil //nolint:nilnil // nil means the system's certificates in crypto/tls
	}
	text, err := readAtMost(c.CAFile, maxCAFile)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificates cannot be read: %w", err)
	}
	count := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		count++
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d in %s cannot be read: %w", count, c.CAFile, err)
		}
		roots.AddCert(certificate)
	}
	if begun := bytes.Count(text, []byte("-----BEGIN CERTIFICATE-----")); begun > count {
		return nil, fmt.Errorf("%d of the %d certificates in %s cannot be read: each must end with its line -----END CERTIFICATE-----",
			begun-count, begun, c.CAFile)
	}
	if count == 0 {
		return nil, fmt.Errorf("%s holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)", c.CAFile)
	}
	return roots, nil
}

// readAtMost reads a file of limited size.
func readAtMost(path string, most int64) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
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
