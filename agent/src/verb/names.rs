//! How names are resolved by a program that brings its own C library.

/// Has names looked up in `/etc/hosts` and by DNS, whatever `nsswitch.conf` says: what it names besides are libraries of the system that the
/// program runs in, and a static glibc that loads those of another release ends with a fault. In the machine there are some.
///
/// Source: glibc's `nss.h`; "files" and "dns" are part of glibc itself since 2.34.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub(super) fn resolve_by_files_and_dns() {
    use std::ffi::{c_char, c_int};

    #[expect(
        unsafe_code,
        reason = "a function of glibc's that copies two constant texts, called before there is another thread"
    )]
    // SAFETY: both texts end with a zero and outlive the program.
    let set = unsafe {
        unsafe extern "C" {
            fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
        }
        __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr())
    };
    if set != 0 {
        tracing::warn!("names are looked up as nsswitch.conf says");
    }
}

/// The system's own C library loads the system's own.
#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
pub(super) const fn resolve_by_files_and_dns() {}
