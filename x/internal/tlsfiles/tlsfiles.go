// Package tlsfiles builds a client's TLS configuration from the files that a URL names.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Files are the TLS parameters of a URL. Each may be empty.
type Files struct {
	CA         string // file with the certificates of trusted authorities; default those of the system
	Cert, Key  string // files with the client certificate and its key; default none
	ServerName string // name that the server's certificate has to be for; default the host of the address
}

// Config returns the TLS configuration for a client. Its errors name the parameter that
// is wrong.
func (f Files) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: no certificate in %s", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("cert and key: want both or none")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
