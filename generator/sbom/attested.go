package sbom

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// SPDXPredicate is the predicate type of in-toto statements that are a bill of
// materials in SPDX, as BuildKit attaches them to images.
const SPDXPredicate = "https://spdx.dev/Document"

// ParseAttestation lists the packages that an in-toto statement with an SPDX
// document names. Packages without a package URL are left out: they are the
// image itself and its parts.
func ParseAttestation(statement []byte) ([]Package, error) {
	var s struct {
		PredicateType string `json:"predicateType"`
		Predicate     struct {
			Packages []struct {
				Name     string `json:"name"`
				Version  string `json:"versionInfo"`
				License  string `json:"licenseDeclared"`
				External []struct {
					Type    string `json:"referenceType"`
					Locator string `json:"referenceLocator"`
				} `json:"externalRefs"`
			} `json:"packages"`
		} `json:"predicate"`
	}
	if err := json.Unmarshal(statement, &s); err != nil {
		return nil, fmt.Errorf("attestation: %w", err)
	}
	if s.PredicateType != SPDXPredicate {
		return nil, errors.New("attestation: it has no SPDX document")
	}
	var list []Package
	for _, p := range s.Predicate.Packages {
		for _, ref := range p.External {
			rest, ok := strings.CutPrefix(ref.Locator, "pkg:")
			if ref.Type != "purl" || !ok {
				continue
			}
			kind, _, _ := strings.Cut(rest, "/")
			_, query, _ := strings.Cut(rest, "?")
			values, _ := url.ParseQuery(query)
			license := p.License
			if license == "NOASSERTION" || license == "NONE" {
				license = ""
			}
			list = append(list, Package{
				Type: kind, Name: p.Name, Version: p.Version, Arch: values.Get("arch"), License: license, URL: ref.Locator,
				Found: "attestation",
			})
			break
		}
	}
	slices.SortStableFunc(list, comparePackages)
	return slices.CompactFunc(list, func(a, b Package) bool { return cmp.Compare(a.URL, b.URL) == 0 }), nil
}
