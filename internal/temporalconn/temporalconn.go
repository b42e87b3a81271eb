// Package temporalconn says how to reach the frontend of Temporal: address, namespace, TLS, client certificate and API key, by the
// conventions of Temporal's own tools. Files with certificates and keys are read again while the process runs.
package temporalconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/everpost/everpost/internal/credential"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// The variables that errors name.
const (
	variableAddress    = "TEMPORAL_ADDRESS"
	variableKey        = "TEMPORAL_API_KEY"
	variableKeyFile    = "TEMPORAL_API_KEY_FILE"
	variableTLS        = "TEMPORAL_TLS"
	variableCA         = "TEMPORAL_TLS_SERVER_CA_CERT_PATH"
	variableServerName = "TEMPORAL_TLS_SERVER_NAME"
	variableCert       = "TEMPORAL_TLS_CLIENT_CERT_PATH"
	variableCertKey    = "TEMPORAL_TLS_CLIENT_KEY_PATH"
	variableUnverified = "TEMPORAL_TLS_DISABLE_HOST_VERIFICATION"
)

// Load reads the settings from the environment (nil: that of the process), and from the configuration file of
// Temporal's tools if there is one. TEMPORAL_API_KEY_FILE is Everpost's own addition. An error names the variable. It
// never contains a key.
//
// The certificate and the key of the client and the server's authorities are read again for each connection, an API
// key from a file every few seconds. While a new file cannot be used, the content of the old one is.
func Load(env envconfig.EnvLookup, logger *slog.Logger) (client.Options, error) {
	if env == nil {
		env = envconfig.EnvLookupOS
	}
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{EnvLookup: env})
	if err != nil {
		return client.Options{}, fmt.Errorf("settings of Temporal: %w", err)
	}
	keyFile, _ := env.LookupEnv(variableKeyFile)
	key, secured := profile.APIKey, profile.TLS
	if key, err = credential.Clean(key, false); err != nil {
		return client.Options{}, fmt.Errorf("%s: %w", variableKey, err)
	}
	if key != "" && keyFile != "" {
		return client.Options{}, fmt.Errorf("%s: is set together with %s; unset one of them", variableKeyFile, variableKey)
	}
	profile.APIKey, profile.TLS = "", nil // the rest is as the SDK has it
	o, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return client.Options{}, fmt.Errorf("settings of Temporal: %w", err)
	}
	o.HostPort, o.Namespace = cmp.Or(o.HostPort, client.DefaultHostPort), cmp.Or(o.Namespace, client.DefaultNamespace)
	withKey := key != "" || keyFile != ""
	switch {
	case secured != nil && secured.Disabled:
		o.ConnectionOptions.TLSDisabled = true
	case secured != nil || withKey:
		if secured == nil {
			secured = &envconfig.ClientConfigTLS{}
		}
		serverName := cmp.Or(secured.ServerName, hostOf(cmp.Or(o.ConnectionOptions.Authority, o.HostPort)))
		if o.ConnectionOptions.TLS, err = tlsConfig(*secured, serverName, logger); err != nil {
			return client.Options{}, err
		}
	}
	if err := requireTLS(o, withKey); err != nil {
		return client.Options{}, err
	}
	switch {
	case key != "":
		o.Credentials = client.NewAPIKeyStaticCredentials(key)
	case keyFile != "":
		file := &keyFileReader{path: keyFile, log: logger}
		if _, err := file.read(); err != nil {
			return client.Options{}, fmt.Errorf("%s: %w", variableKeyFile, err)
		}
		o.Credentials = client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) { return file.read() })
	}
	return o, nil
}

// requireTLS returns an error when the connection would be unencrypted over a network without a word of the operator
// that it may be, or when it would carry an API key.
func requireTLS(o client.Options, withKey bool) error {
	address := o.HostPort
	if o.ConnectionOptions.TLS != nil || isLoopback(hostOf(address)) {
		return nil
	}
	if !o.ConnectionOptions.TLSDisabled {
		return fmt.Errorf("%s: the connection to %s would not be encrypted; set %s=true, or =false where the network may be trusted",
			variableAddress, address, variableTLS)
	}
	if withKey {
		return fmt.Errorf("%s: is false, and the API key would be sent to %s without encryption", variableTLS, address)
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// hostOf returns the host of an address with a port or without.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

func tlsConfig(c envconfig.ClientConfigTLS, serverName string, logger *slog.Logger) (*tls.Config, error) {
	if c.DisableHostVerification {
		return nil, fmt.Errorf("%s: Everpost always verifies the server; set %s and %s", variableUnverified, variableCA, variableServerName)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if err := addClientCertificate(config, c, logger); err != nil {
		return nil, err
	}
	return config, addAuthorities(config, c, logger)
}

func addClientCertificate(config *tls.Config, c envconfig.ClientConfigTLS, logger *slog.Logger) error {
	both := variableCert + ", " + variableCertKey
	switch {
	case (c.ClientCertPath == "") != (c.ClientKeyPath == "") || (len(c.ClientCertData) == 0) != (len(c.ClientKeyData) == 0):
		return errors.New(both + ": one is set without the other")
	case c.ClientCertPath != "" && len(c.ClientCertData) > 0:
		return errors.New(both + ": are set together with TEMPORAL_TLS_CLIENT_CERT_DATA; unset one of them")
	case c.ClientCertPath != "":
		files := &certificateFiles{certPath: c.ClientCertPath, keyPath: c.ClientKeyPath, log: logger}
		if _, err := files.read(); err != nil {
			return fmt.Errorf("%s: %w", both, err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return files.read() }
	case len(c.ClientCertData) > 0:
		certificate, err := tls.X509KeyPair(c.ClientCertData, c.ClientKeyData)
		if err != nil {
			return fmt.Errorf("TEMPORAL_TLS_CLIENT_CERT_DATA, TEMPORAL_TLS_CLIENT_KEY_DATA: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	return nil
}
