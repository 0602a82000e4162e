//! Amounts of a node's resources, as kubelet takes them.

use std::collections::BTreeMap;

use super::error::Mistake;

/// Resources that can be kept back. Source: kubelet's configuration v1beta1, `systemReserved` and `kubeReserved`.
const RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
/// Source: Kubernetes API reference, "Quantity"; an exponent stands in the place of a suffix.
const SUFFIXES: [&str; 16] = [
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
];

/// What is kept back: kubelet does not start with a resource or an amount that it does not know.
pub(super) fn reserved(key: &'static str, amounts: &BTreeMap<String, String>) -> Result<(), Mistake> {
    if amounts.keys().any(|name| !RESOURCES.contains(&name.as_str())) {
        return Err(Mistake::new(
            key,
            "has a resource that can't be kept back",
            "write cpu, memory, ephemeral-storage or pid",
        ));
    }
    if amounts.values().all(|amount| is_amount(amount)) {
        return Ok(());
    }
    Err(Mistake::new(
        key,
        "has no amount of a resource",
        "write one such as 250m or 512Mi",
    ))
}

fn is_amount(text: &str) -> bool {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']);
    let exponent = exponent.is_some_and(|digits| digits.parse::<i32>().is_ok());
    number.starts_with(|c: char| c.is_ascii_digit())
        && number.parse::<f64>().is_ok()
        && (exponent || SUFFIXES.contains(&suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_a_number_with_a_suffix_that_kubernetes_knows() {
        for good in ["0", "250m", "1.5Gi", "100k", "512Mi", "1e3", "2E-1", "1E"] {
            assert!(is_amount(good), "{good}");
        }
        for bad in ["", "c4nary", "-1", "1 Gi", "1.2.3", ".5", "1gi", "1e3x", "1e", "Mi"] {
            assert!(!is_amount(bad), "{bad}");
        }
    }
}
