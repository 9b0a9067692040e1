package redistest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A client implements the part of the Redis protocol that this package needs.
type client struct {
	address, password string
	secure            *tls.Config // nil: no TLS
}

// commandTimeout bounds the time of one command.
const commandTimeout = 10 * time.Second

func (c client) do(command []string) (string, error) {
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(commandTimeout)); err != nil {
		return "", err
	}
	replies := bufio.NewReader(conn)
	if c.password != "" {
		if _, err := roundTrip(conn, replies, []string{"AUTH", c.password}); err != nil {
			return "", err
		}
	}
	return roundTrip(conn, replies, command)
}

func (c client) dial() (net.Conn, error) {
	d := &net.Dialer{Timeout: commandTimeout}
	if c.secure != nil {
		return tls.DialWithDialer(d, "tcp", c.address, c.secure)
	}
	return d.Dial("tcp", c.address)
}

func roundTrip(to io.Writer, from *bufio.Reader, command []string) (string, error) {
	request := fmt.Appendf(nil, "*%d\r\n", len(command))
	for _, part := range command {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(part), part)
	}
	if _, err := to.Write(request); err != nil {
		return "", err
	}
	return readReply(from)
}

func readReply(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '-':
		return "", errors.New(text)
	case '+', ':':
		return text, nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || kind != '$' && kind != '*':
		return "", fmt.Errorf("not a Redis reply: %q", line)
	case n < 0: // a nil reply
		return "", nil
	case kind == '$':
		text := make([]byte, n+len("\r\n"))
		_, err := io.ReadFull(from, text)
		return string(text[:n]), err
	}
	parts := make([]string, n)
	for i := range parts {
		if parts[i], err = readReply(from); err != nil {
			return "", err
		}
	}
	return strings.Join(parts, "\n"), nil
}
