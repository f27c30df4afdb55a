//! The certificates of one cluster.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Signs the certificates of a cluster. Its key exists as long as this does.
pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// The files of a certificate and its key.
pub struct Pair {
    /// The certificate's.
    pub certificate: PathBuf,
    /// The key's.
    pub key: PathBuf,
}

/// Who somebody is for the API server.
pub struct User<'a> {
    /// The user's name.
    pub name: &'a str,
    /// The one group that is not everybody's.
    pub group: Option<&'a str>,
}

impl Authority {
    /// Makes one that writes its files to `directory`, which it makes.
    pub fn create(directory: PathBuf, name: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(&directory)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?;
        let authority = Self { directory, issuer: Issuer::new(params, key) };
        fs::write(authority.certificate(), certificate.pem())?;
        Ok(authority)
    }

    /// Where its files lie.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of the authority's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// A certificate for clients, in files of this name.
    pub fn client(&self, file: &str, user: &User<'_>) -> anyhow::Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user.name);
        if let Some(group) = user.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(file, params)
    }

    /// A certificate for a server with these names and addresses.
    pub fn server(
        &self,
        file: &str,
        names: &[&str],
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> anyhow::Result<Pair> {
        let addresses = addresses.into_iter().map(|address| address.to_string());
        let names = names.iter().map(|&name| name.to_owned()).chain(addresses);
        let mut params = CertificateParams::new(names.collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(file, params)
    }

    fn sign(&self, file: &str, mut params: CertificateParams) -> anyhow::Result<Pair> {
        let key = KeyPair::generate()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let pair = Pair {
            certificate: self.directory.join(format!("{file}.crt")),
            key: self.directory.join(format!("{file}.key")),
        };
        fs::write(&pair.certificate, certificate.pem())?;
        fs::write(&pair.key, key.serialize_pem())?;
        Ok(pair)
    }
}

/// A public and a private key that are no certificate's: for the tokens of ServiceAccounts.
pub struct TokenKeys {
    /// The public one's file.
    pub public: PathBuf,
    /// The private one's file.
    pub private: PathBuf,
}

impl TokenKeys {
    /// Makes a pair in `directory`.
    pub fn create(directory: &Path) -> anyhow::Result<Self> {
        let keys =
            Self { public: directory.join("tokens.pub"), private: directory.join("tokens.key") };
        let pair = KeyPair::generate()?;
        fs::write(&keys.public, pair.public_key_pem())?;
        fs::write(&keys.private, pair.serialize_pem())?;
        Ok(keys)
    }
}
