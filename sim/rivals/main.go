// Rivals carries out the plans of package sim with locks as they are: redquorum's production stack,
// and locks that people use. It is a module of its own, so that nobody who imports redquorum gets them.
package main

func main() {}
