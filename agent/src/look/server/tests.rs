use rcgen::{CertificateParams, Issuer, KeyPair, date_time_ymd};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An authority, and whom it is trusted by.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            roots: Arc::new(roots),
        }
    }

    /// A server of this name, whose certificate counts in these years.
    fn serves(&self, name: &str, years: std::ops::Range<i32>) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(years.start, 1, 1), date_time_ymd(years.end, 1, 1));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap()
    }
}

/// Answers every request so, at the address that is returned. What was asked is sent on.
async fn serve(
    tls: Option<ServerConfig>,
    date: &str,
    status: &'static str,
) -> (Url, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let answer = format!("HTTP/1.1 {status}\r\n{date}content-length: 0\r\nconnection: close\r\n\r\n");
    let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
    let (send, asked) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            match &acceptor {
                Some(acceptor) => {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        continue;
                    };
                    let length = stream.read(&mut request).await.unwrap_or_default();
                    let _ = send.send(String::from_utf8_lossy(&request[..length]).into_owned());
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                }
                None => {
                    let _ = stream.read(&mut request).await;
                    let _ = stream
                        .write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                        .await;
                }
            }
        }
    });
    (url, asked)
}

#[tokio::test]
async fn fc_k5_what_is_wrong_with_a_certificate_is_told_apart() {
    let (ours, others) = (Authority::new(), Authority::new());
    for (config, expected) in [
        (ours.serves("127.0.0.1", 2020..2090), Tls::Trusted),
        (ours.serves("127.0.0.1", 2001..2002), Tls::Expired),
        (ours.serves("127.0.0.1", 2089..2090), Tls::NotYetValid),
        (ours.serves("other.test", 2020..2090), Tls::WrongName),
        (others.serves("127.0.0.1", 2020..2090), Tls::UnknownAuthority),
    ] {
        let (url, mut asked) = serve(Some(config), "", "200 OK").await;
        let Reached::Answered(answer) = reach(&url, ours.roots.clone()).await else {
            panic!("{expected:?}: no answer")
        };
        assert_eq!((answer.tls, answer.status, answer.ahead), (expected, 200, None));
        let request = asked.recv().await.unwrap().to_lowercase();
        assert!(
            request.starts_with("get /readyz ") && !request.contains("authorization"),
            "{request}"
        );
    }
    let (url, _) = serve(None, "", "200 OK").await;
    assert_eq!(
        reach(&url, ours.roots.clone()).await,
        Reached::Failed("it speaks plain HTTP where TLS is expected")
    );
    // One that waits for the end of a request.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let patient = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut request).await {
                    if request[..length].ends_with(b"\r\n\r\n") {
                        let _ = stream
                            .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                            .await;
                    }
                }
            });
        }
    });
    assert_eq!(reach(&patient, ours.roots.clone()).await, Reached::Failed(PLAIN));
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("https://{}", listener.local_addr().unwrap()).parse().unwrap()
    };
    assert_eq!(
        reach(&nobody, ours.roots.clone()).await,
        Reached::Failed("the connection is refused")
    );
    assert_eq!(
        reach(&nobody, Arc::new(RootCertStore::empty())).await,
        Reached::NoAuthority
    );
}

#[tokio::test]
async fn fc_k4_the_time_of_a_server_is_had_also_where_its_certificate_looks_wrong() {
    let ours = Authority::new();
    let config = ours.serves("127.0.0.1", 2089..2091);
    let (url, _) = serve(
        Some(config),
        "date: Sun, 01 Jan 2090 12:00:00 GMT\r\n",
        "401 Unauthorized",
    )
    .await;
    let Reached::Answered(answer) = reach(&url, ours.roots.clone()).await else {
        panic!("no answer")
    };
    assert_eq!(answer.tls, Tls::NotYetValid);
    assert_eq!(answer.by_its_clock, Some(Tls::Trusted));
    assert!(answer.ahead.unwrap() > 86_400 * 365);
}

#[tokio::test]
async fn a_token_is_shown_to_a_trusted_server_alone_and_judged_by_its_status() {
    let settings = crate::config::tests::sample();
    let (ours, others) = (Authority::new(), Authority::new());
    for (status, expected) in [
        ("200 OK", Token::Taken(200)),
        ("403 Forbidden", Token::Taken(403)),
        ("401 Unauthorized", Token::Unknown),
        ("503 Service Unavailable", Token::Unclear),
    ] {
        let (url, mut asked) = serve(Some(ours.serves("127.0.0.1", 2020..2090)), "", status).await;
        let reached = reach(&url, ours.roots.clone()).await;
        assert_eq!(
            token(&url, &settings, &ours.roots, &reached).await,
            expected,
            "{status}"
        );
        let (first, second) = (asked.recv().await.unwrap(), asked.recv().await.unwrap());
        assert!(!first.contains("abcdef"), "{first}");
        assert!(
            second.starts_with("GET /api ") && second.contains("Bearer abcdef."),
            "{second}"
        );
    }
    let (url, mut asked) = serve(Some(others.serves("127.0.0.1", 2020..2090)), "", "200 OK").await;
    let reached = reach(&url, ours.roots.clone()).await;
    assert_eq!(token(&url, &settings, &ours.roots, &reached).await, Token::Withheld);
    asked.recv().await.unwrap();
    assert!(asked.try_recv().is_err(), "it was asked a second time");
}
