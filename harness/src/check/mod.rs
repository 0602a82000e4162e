//! Checks: named, independent of one another, each with its time limit.
