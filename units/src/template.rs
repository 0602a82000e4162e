//! Text with `{{name}}` in it, filled from values; a name without a value, or a value without a name, is an error.

use std::collections::BTreeMap;

/// Why a template could not be filled.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum TemplateError {
    #[error("the template names {{{{{0}}}}}, for which there is no value")]
    Missing(String),
    #[error("the template does not name {{{{{0}}}}}, for which there is a value")]
    Unused(String),
    #[error("the template opens a name with {{{{ and does not close it")]
    Unclosed,
    #[error("the value of {{{{{0}}}}} holds a control character")]
    Control(String),
}

/// Fills `template`. A value is never looked at for names, so that no input can reach another's place.
///
/// # Errors
/// Any mismatch of names and values; a value with a control character other than the line ends of a filled template.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> Result<String, TemplateError> {
    let mut unused: BTreeMap<&str, &str> = values.iter().copied().collect();
    let values = unused.clone();
    let mut text = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").ok_or(TemplateError::Unclosed)?;
        let value = values
            .get(name)
            .ok_or_else(|| TemplateError::Missing(name.to_owned()))?;
        if value.chars().any(|c| c.is_control() && c != '\n') {
            return Err(TemplateError::Control(name.to_owned()));
        }
        unused.remove(name);
        text.push_str(before);
        text.push_str(value);
        rest = after;
    }
    text.push_str(rest);
    match unused.into_keys().next() {
        Some(name) => Err(TemplateError::Unused(name.to_owned())),
        None => Ok(text),
    }
}

/// The same, of a template of ours and its own values.
pub(crate) fn filled(template: &str, values: &[(&str, &str)]) -> String {
    fill(template, values).expect("the templates' names and the values are those of the tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_name_gets_its_value() {
        assert_eq!(fill("{{a}}-{{b}}-{{a}}", &[("a", "1"), ("b", "2")]).unwrap(), "1-2-1");
    }

    #[test]
    fn a_name_without_a_value_is_an_error() {
        assert_eq!(fill("x {{a}}", &[]), Err(TemplateError::Missing("a".into())));
    }

    #[test]
    fn a_value_without_a_name_is_an_error() {
        assert_eq!(fill("x", &[("a", "1")]), Err(TemplateError::Unused("a".into())));
    }

    #[test]
    fn an_open_name_is_an_error() {
        assert_eq!(fill("x {{a", &[("a", "1")]), Err(TemplateError::Unclosed));
    }

    #[test]
    fn a_value_is_not_looked_at_for_names() {
        assert_eq!(fill("{{a}}", &[("a", "{{b}}")]).unwrap(), "{{b}}");
    }
}
