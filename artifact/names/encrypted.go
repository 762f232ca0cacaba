package names

// Of an encrypted secret among an application's manifests; FORMAT.md of package
// artifact.
const (
	// EncryptedSuffix is appended to the name of the plain file.
	EncryptedSuffix = ".age"
	// MaxSecret is the largest size of the plain content, in bytes. Devices
	// decrypt no more.
	MaxSecret = 1 << 20
)
