package mender

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/tarin"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// readHeader reads all of header.tar before it trusts anything in it.
func (r *Reader) readHeader(h *tar.Header) error {
	var err error
	if r.header.Compression, err = compression(h.Name, nameHeader); err != nil {
		return err
	}
	if h.Size > maxHeader {
		return fmt.Errorf("%w: %s of %d bytes", ErrTooLarge, h.Name, h.Size)
	}
	sum := sha256.New()
	src := io.TeeReader(r.outer, sum)
	z, err := decompress(src, r.header.Compression)
	if err != nil {
		return err
	}
	defer z.Close()
	tr, err := tarin.NewReader(z, tarin.Options{
		Plain: true, MaxBytes: maxHeader, MaxMembers: maxMembers, Format: ErrFormat, TooLarge: ErrTooLarge,
	})
	if err != nil {
		return err
	}
	found := make(map[string][]byte)
	for {
		m, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		if err := r.headerMember(tr, m, found); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, src); err != nil {
		return err
	}
	if err := r.expect(h.Name, sum.Sum(nil)); err != nil {
		return err
	}
	return r.parseHeader(found)
}

func (r *Reader) headerMember(tr io.Reader, m *tar.Header, found map[string][]byte) error {
	most := int64(maxInfo)
	switch m.Name {
	case nameMetaData:
		most = maxMetaData
	case nameInfo, nameTypeInfo:
	default:
		if script, ok := strings.CutPrefix(m.Name, scriptsDir); ok && m.Typeflag == tar.TypeReg {
			if err := checkFileName(script); err != nil {
				return err
			}
			r.header.Scripts = append(r.header.Scripts, script)
			sum := sha256.New()
			if _, err := io.Copy(sum, tr); err != nil {
				return err
			}
			if r.header.ScriptSums == nil {
				r.header.ScriptSums = make(map[string]digest.Digest)
			}
			if _, ok := r.header.ScriptSums[script]; ok {
				return fmt.Errorf("%w: %s occurs twice", ErrFormat, m.Name)
			}
			r.header.ScriptSums[script] = digest.OfHash(sum)
		}
		return nil // not needed here
	}
	if _, ok := found[m.Name]; ok || m.Typeflag != tar.TypeReg {
		return fmt.Errorf("%w: %s occurs twice, or is no file", ErrFormat, m.Name)
	}
	if m.Size > most {
		return fmt.Errorf("%w: %s of %d bytes", ErrTooLarge, m.Name, m.Size)
	}
	b, err := io.ReadAll(tr)
	found[m.Name] = b
	return err
}

// ParseHeader reads header-info and type-info of an artifact, which the Mender client also
// gives to update modules. The header has what these two documents say, and nothing else.
func ParseHeader(headerInfo, typeInfo []byte) (*Header, error) {
	var r Reader
	if err := r.parseHeader(map[string][]byte{nameInfo: headerInfo, nameTypeInfo: typeInfo}); err != nil {
		return nil, err
	}
	return &r.header, nil
}

func (r *Reader) parseHeader(found map[string][]byte) error {
	var info headerInfo
	var typ typeInfo
	for _, p := range []struct {
		name string
		into any
	}{{nameInfo, &info}, {nameTypeInfo, &typ}} {
		if found[p.name] == nil {
			return fmt.Errorf("%w: no %s", ErrFormat, p.name)
		}
		if err := strictjson.Unmarshal(found[p.name], p.into); err != nil {
			return malformed(p.name, err)
		}
	}
	if err := info.check(&typ); err != nil {
		return err
	}
	h := &r.header
	h.Name, h.Group = info.Provides.Name, info.Provides.Group
	h.DeviceTypes, h.DependsNames, h.DependsGroups = info.Depends.DeviceTypes, info.Depends.Names, info.Depends.Groups
	h.PayloadType, h.Provides, h.ClearsProvides = *typ.Type, typ.Provides, typ.Clears
	for k, v := range typ.Depends {
		if h.Depends == nil {
			h.Depends = make(map[string][]string)
		}
		h.Depends[k] = v
	}
	h.HeaderInfo, h.TypeInfo = found[nameInfo], found[nameTypeInfo]
	if b := found[nameMetaData]; len(b) > 0 {
		if err := strictjson.Check(b); err != nil {
			return malformed("meta-data", err)
		}
		h.MetaData = b
	}
	slices.Sort(h.Scripts)
	return nil
}

// malformed is the error of a document of the artifact. It names the key if a key is
// wrong.
func malformed(document string, err error) error {
	if errors.Is(err, strictjson.ErrKey) {
		return fmt.Errorf("%w: %s: %w", ErrFormat, document, err)
	}
	return fmt.Errorf("%w: malformed %s", ErrFormat, document)
}
