/**
 * Symmetric memory: every rank of a job opens the same window of memory and sees every other rank's
 * copy, and an all-reduce runs over them. Start with {@link dev.symm.Comm#create}.
 */
package dev.symm;
