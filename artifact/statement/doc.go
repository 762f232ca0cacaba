// Package statement makes, reads and verifies the signed statement of what a
// release of an application is. Whoever makes the release with app-gen signs it. It
// travels in the metadata of an App Artifact and stays with the release in the
// device's store.
//
// A statement covers what the application is, not how it travels: a full artifact and
// a delta of one release carry the same statement. artifact/FORMAT.md, "Statement",
// describes its form.
package statement
