package names

// Rules for an encrypted secret among an application's manifests; see
// artifact/FORMAT.md.
const (
	// EncryptedSuffix is appended to the name of the plain file.
	EncryptedSuffix = ".age"
	// MaxSecret is the largest size of the plain content, in bytes. Devices refuse to
	// decrypt more.
	MaxSecret = 1 << 20
)
