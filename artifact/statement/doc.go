// Package statement has the signed statement of an application: what a release
// is, signed by whoever made it with app-gen. It travels in the metadata of an
// App Artifact and stays with the release in the device's store.
//
// A statement covers what the application is and not how it travels: a whole
// artifact and a delta of one release carry the same one. Its form is in
// artifact/FORMAT.md, "Statement".
package statement
