/* Built from page/ by "make page"; edit the sources there.

d3-color 3.1.1: Copyright 2010-2026 Mike Bostock
d3-dispatch 3.0.2: Copyright 2010-2026 Mike Bostock
d3-drag 3.0.1: Copyright 2010-2026 Mike Bostock
d3-interpolate 3.0.2: Copyright 2010-2026 Mike Bostock
d3-selection 3.0.1: Copyright 2010-2026 Mike Bostock
d3-timer 3.0.2: Copyright 2010-2026 Mike Bostock
d3-transition 3.0.2: Copyright 2010-2026 Mike Bostock
d3-zoom 3.0.1: Copyright 2010-2026 Mike Bostock

Permission to use, copy, modify, and/or distribute this software for any purpose
with or without fee is hereby granted, provided that the above copyright notice
and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH
REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND
FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS
OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER
TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF
THIS SOFTWARE.


d3-ease 3.0.2: Copyright 2010-2026 Mike Bostock, Copyright 2001 Robert Penner

All rights reserved.

Redistribution and use in source and binary forms, with or without modification,
are permitted provided that the following conditions are met:

* Redistributions of source code must retain the above copyright notice, this
  list of conditions and the following disclaimer.

* Redistributions in binary form must reproduce the above copyright notice,
  this list of conditions and the following disclaimer in the documentation
  and/or other materials provided with the distribution.

* Neither the name of the author nor the names of contributors may be used to
  endorse or promote products derived from this software without specific prior
  written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND
ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED
WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT OWNER OR CONTRIBUTORS BE LIABLE FOR
ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES
(INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES;
LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON
ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
(INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS
SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.


preact 11.2.0: Copyright (c) 2015-present Jason Miller

The MIT License (MIT)


Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
*/
"use strict";(()=>{var D,ui,Go,Ut,Hn,Ge,ci,Ve,fi,qn,Gn,qo,xe=Symbol.for("pv"),qe={},Ke=[],Ko=/^m(i|n|o|s|text|space)$/,Kn=Array.isArray,hi=Ke.slice,Gt=Object.assign;function Ht(e){
e&&e.parentNode&&e.remove()}function We(e,t,n,r,i){var s={type:e,props:t,key:n,ref:r,__k:null,__:null,__b:0,__e:null,__c:null,constructor:xe,__v:i||++ui,__i:-1,__u:0};return!i&&D.vnode&&D.
vnode(s),s}function ct(){return{current:null}}function se(e){return e.children}function G(e,t){this.props=e,this.context=t,this.__g=0}function Dt(e,t){if(t==null)
return e.__&&Dt(e.__,e.__i+1);for(var n;t<e.__k.length;t++)if((n=e.__k[t])&&n.__e)return n.__e;return typeof e.type!="function"||e.props.__P?null:Dt(e)}function Xo(e){
var t,n=e.__v,r=n.__e,i=[],s=[],o=e.__P;o&&((t=Gt({constructor:xe},n)).__v=n.__v+1,D.vnode&&D.vnode(t),Xn(o,t,n,e.__n,o.namespaceURI,32&n.__u?[r]:null,i,r||Dt(n),
32&n.__u,s),t.__v=n.__v,t.__.__k[t.__i]=t,yi(i,t,s),n.__=n.__e=null,t.__e!=r&&di(t))}function di(e){if((e=e.__)&&e.__c&&!e.props.__P)return e.__e=null,e.__k.some(
function(t){return t&&(e.__e=t.__e)}),di(e)}function ai(e){(8&e.__g||(e.__g|=8,Ut.push(e),Ge++))&&Hn==D.debounceRendering||((Hn=D.debounceRendering)||queueMicrotask)(
pi)}function pi(){try{for(var e,t=1;Ut.length;)Ut.length>t&&Ut.sort(ci),e=Ut.shift(),t=Ut.length,8&e.__g&&Xo(e)}finally{(Ge=Ut.length)&&(Hn||queueMicrotask)(pi)}}
function mi(e,t,n,r,i,s,o,a,l,u,c){var h,p,d,m,b,v,g=r.__k||Ke,w=t.length;for(l=Yo(n,t,g,l,w),h=0;h<w;h++)(d=n.__k[h])!=null&&(p=~d.__i&&g[d.__i]||qe,d.__i=h,v=
Xn(e,d,p,i,s,o,a,l,u,c),m=d.__e,(p.ref!=d.ref||8&p.__u)&&(p.ref&&Yn(p.ref,null,d,p),d.ref&&c.push(d.ref,d.__c||m,d)),b=b||m,4&d.__u?(l=gi(d,l,e,!p.__v),p.__e&&(p.
__e=null)):typeof d.type=="function"&&v!==void 0?l=v:m&&(l=m.nextSibling),d.__u&=-21);return n.__e=b,l}function Yo(e,t,n,r,i){var s,o,a,l,u,c,h,p,d,m=n.length,b=m,
v=0,g=0,w=e.__k=Array(i);for(s=0;s<i;s++)(o=t[s])!=null&&typeof o!="boolean"&&typeof o!="function"?(typeof o!="object"||o.constructor===String?o=w[s]=We(null,o):
Kn(o)?o=w[s]=We(se,{children:o}):o.constructor===xe&&o.__b?o=w[s]=We(o.type,o.props,o.key,o.ref,o.__v):w[s]=o,l=s+v,o.__=e,o.__b=e.__b+1,a=null,~(u=o.__i=jo(o,n,
l,b))&&(b--,(a=n[u])&&(a.__u|=2)),a&&a.__v?(o.__u|=16,u==l-1?v--:u==l+1?v++:u!=l&&(u>l?v--:v++,g=1)):(~u||(i>m?v--:i<m&&v++),typeof o.type!="function"&&(o.__u|=
4))):w[s]=null;if(g){for(c=[],h=[],s=0;s<i;s++)if((o=w[s])&&16&o.__u){for(v=0,p=c.length;v<p;)c[d=v+p>>1]<o.__i?v=d+1:p=d;c[v]=o.__i,h[s]=v+1}for(v=c.length;s--;)
h[s]&&(h[s]==v?v--:w[s].__u|=4)}if(b)for(s=0;s<m;s++)!(a=n[s])||2&a.__u||(a.__e==r&&(r=Dt(a)),jn(a,a));return r}function gi(e,t,n,r){var i,s,o,a;if(typeof e.type==
"function"){if(e.props.__P)return t;if(i=e.__k)for(s=0;s<i.length;s++)i[s]&&(i[s].__=e,t=gi(i[s],t,n,!1));return t}for(t&&!t.parentNode&&(t=Dt(e))&&!t.parentNode&&
(t=null),o=e.__e,a=t;a&&a.nodeType==8;)a=a.nextSibling;for(o!=a&&(!r&&n.moveBefore&&o.parentNode?n.moveBefore(o,t):n.insertBefore(o,t||null)),t=o;(t=t&&t.nextSibling)&&
t.nodeType==8&&!t.data.startsWith("$s"););return t}function jo(e,t,n,r){var i,s=e.key,o=e.type,a=t[n],l=a&&!(2&a.__u);if(a===null&&s==null||l&&s==a.key&&o==a.type)return n;if(r>(l?1:0)){for(i=n-1;i>=0;i--)if((a=
t[i])&&!(2&a.__u)&&s==a.key&&o==a.type)return i;for(i=n+1;i<t.length;i++)if((a=t[i])&&!(2&a.__u)&&s==a.key&&o==a.type)return i}return-1}function li(e,t,n){n==null&&
(n=""),t[0]=="-"?e.setProperty(t,n):e[t]=n}function Fe(e,t,n,r,i){var s,o;if(t=="style")if(typeof n=="string")e.style.cssText=n;else{if(typeof r=="string"&&(e.style.
cssText=r=""),r)for(t in r)n&&t in n||li(e.style,t);if(n)for(t in n)r&&n[t]==r[t]||li(e.style,t,n[t])}else if(t[0]=="o"&&t[1]=="n")typeof n!="function"&&(n=null),
typeof r!="function"&&(r=null),(e.__e||(e.__e={}))[t]=n,n&&r||(o=Gn[t]||(Gn[t]=Zo(t)),(e.__a||(e.__a={}))[t]=qn,s=t!=(t=t.replace(fi,"$1")),(t=t.slice(2))[0]<"a"&&
(t=t.toLowerCase()),n?e.addEventListener(t,o,s):e.removeEventListener(t,o,s));else{if(i=="http://www.w3.org/2000/svg")t=t.replace(/xlink(H|:h)/,"h").replace(/sName$/,
"s");else if(t!="width"&&t!="height"&&t!="href"&&t!="list"&&t!="form"&&t!="tabIndex"&&t!="download"&&t!="rowSpan"&&t!="colSpan"&&t!="role"&&t!="popover"&&t in e)
try{return void(e[t]=n??"")}catch{}if(typeof n=="function")return;n==null||n===!1&&t[4]!="-"?e.removeAttribute(t):e.setAttribute(t,t=="popover"&&n==1?"":n)}}function Zo(e){
return function(t){var n=this.__e;if(n){if(n=n[e],t[Ve]==null)t[Ve]=qn++;else if(t[Ve]<this.__a[e])return;return n(D.event?D.event(t):t)}}}function Xn(e,t,n,r,i,s,o,a,l,u){
var c,h,p,d,m,b,v,g,w,x,$,P,C,S,N,Q,F,Z,H=t.type;if(t.constructor!==xe)return null;128&n.__u&&(l=32&n.__u,c=n.__c.__z)&&(t.__u|=l,h=s=[],c.nodeType==8?a=He(c,s):
s.push(c),a=s[0]||a),(c=D.__b)&&c(t);t:if(typeof H=="function"){p=o.length;try{if(g=t.props,w=(c=H.prototype)&&c.render,x=(c=H.contextType)&&r[c.__c],$=c?x?x.props.
value:c.__:r,(d=n.__c)?(t.__c=d,2&d.__g&&(d.__g|=1)):(w?t.__c=d=new H(g,$):(t.__c=d=new G(g,$),d.constructor=H,d.render=Jo),x&&x.sub(d),d.state||(d.state={}),d.
__n=r,d.__g|=8,d.__h=[],d.__k=[]),w&&(d.__s||(d.__s=d.state),H.getDerivedStateFromProps&&(d.__s==d.state&&(d.__s=Gt({},d.__s)),Gt(d.__s,H.getDerivedStateFromProps(
g,d.__s)))),m=d.props,b=d.state,d.__v=t,n.__c){if(g!==m&&w&&!H.getDerivedStateFromProps&&d.componentWillReceiveProps&&d.componentWillReceiveProps(g,$),t.__v==n.
__v&&!(8&d.__g)||!(4&d.__g)&&d.shouldComponentUpdate&&d.shouldComponentUpdate(g,d.__s,$)===!1){t.__v!=n.__v&&(d.props=g,d.state=d.__s,d.__g&=-9),t.__e=n.__e,t.__k=
n.__k,t.__k.some(function(K){K&&(K.__=t)}),Ke.push.apply(d.__h,d.__k),d.__k=[],d.__h.length&&o.push(d),a=Dt(n);break t}d.componentWillUpdate&&d.componentWillUpdate(
g,d.__s,$),w&&d.componentDidUpdate&&d.__h.push(function(){d.componentDidUpdate(m,b,v)})}else w&&!H.getDerivedStateFromProps&&d.componentWillMount&&d.componentWillMount(),
w&&d.componentDidMount&&d.__h.push(d.componentDidMount);d.context=$,d.props=g,d.__P=e,d.__g&=-5,P=D.__r,C=w?25:0;do d.__g&=-9,P&&P(t),c=d.render(d.props,d.state=
d.__s,d.context);while(8&d.__g&&++C<25);w&&(Ke.push.apply(d.__h,d.__k),d.__k=[]),d.state=d.__s,d.getChildContext&&(r=Gt({},r,d.getChildContext())),w&&n.__c&&d.getSnapshotBeforeUpdate&&
(v=d.getSnapshotBeforeUpdate(m,b)),S=c&&c.type===se&&c.key==null?c.props.children:c,g.__P&&(c=a,i=(e=g.__P).namespaceURI,l=s=null,n.props&&n.props.__P!=e&&(n.__k.
some(function(K){K&&jn(K,K)}),n.__k=null),a=n.__k?Dt(n,0):null),a=mi(e,Kn(S)?S:[S],t,n,r,i,s,o,a,l,u),g.__P&&(t.__e=null,a=c),t.__u&=-161,h&&h.some(Ht),d.__h.length&&
o.push(d),1&d.__g&&(d.__g&=-4)}catch(K){if(o.length=p,t.__v=null,l||s)if(K&&K.then){if(t.__u|=128|l,s){for(~(F=s.indexOf(a||void 0))||(F=s.length);(Z=s[F-1])&&Z.
nodeType==8;)F--;for(;F<s.length;F++)if(Z=s[F])if(s[F]=null,N){if(Z==Q)break}else{if(Z.nodeType!=8)break;Z.data.startsWith("$s")&&(Q=He(N=Z))}}if(!N){for(;a&&a.
nodeType==8&&a.nextSibling;)a=a.nextSibling;N=a}(c=He(N=t.__c.__z||(t.__c.__z=N)))?(t.__e=N,a=c):t.__e=a,a=a&&a.nextSibling}else s&&s.some(Ht);else t.__e=n.__e;
t.__k||(t.__k=n.__k||[]),K&&K.then||bi(t),D.__e(K,t,n)}}else a=t.__e=Qo(n.__e,t,n,r,i,s,o,l,u,e);return(c=D.diffed)&&c(t),a}function He(e,t){if(e&&e.nodeType==8&&
e.data.startsWith("$s"))for(var n=1;e=e.nextSibling;){if(e.nodeType==8){if(e.data.startsWith("$s"))n++;else if(e.data.startsWith("/$s")&&!--n)return e}t&&t.push(
e)}}function bi(e){e&&(e.__c&&(e.__c.__g|=4),e.__k&&e.__k.some(bi))}function yi(e,t,n){for(var r=0;r<n.length;)Yn(n[r++],n[r++],n[r++]);D.__c&&D.__c(t,e),e.some(
function(i){try{e=i.__h,i.__h=[],e.some(function(s){s.call(i)})}catch(s){D.__e(s,i.__v)}})}function Qo(e,t,n,r,i,s,o,a,l,u){var c,h,p,d,m,b,v,g,w=n.props||qe,x=t.
props,$=t.type;if($=="svg"?i="http://www.w3.org/2000/svg":$=="math"?i="http://www.w3.org/1998/Math/MathML":i||(i="http://www.w3.org/1999/xhtml"),s){for(c=0;c<s.
length;c++)if((m=s[c])&&($?m.localName==$:m.nodeType==3)){e=m,s[c]=null;break}}if(!e){if(g=u.ownerDocument||document,!$)return g.createTextNode(x);e=g.createElementNS(
i,$,x.is?x:u),a&&(D.__m&&D.__m(t,s),a=!1),s=null}if($){if(u=$=="template"&&e.content||e,s=$=="textarea"&&x.defaultValue!=null?null:s&&hi.call(u.childNodes),!a&&
s)for(w={},c=0;c<e.attributes.length;c++)w[(m=e.attributes[c]).name]=m.value;for(c in w)m=w[c],c=="dangerouslySetInnerHTML"?p=m:c=="children"||c in x||c=="value"&&
"defaultValue"in x||c=="checked"&&"defaultChecked"in x||Fe(e,c,null,m,i);for(c in x)m=x[c],c=="children"?d=m:c=="dangerouslySetInnerHTML"?h=m:c=="value"?b=m:c==
"checked"?v=m:a&&typeof m!="function"||w[c]===m||Fe(e,c,m,w[c],i);h?(a||p&&(h.__html==p.__html||h.__html==e.innerHTML)||(e.innerHTML=h.__html),t.__k=[]):(p&&(e.
textContent=""),($=="foreignObject"||i=="http://www.w3.org/1998/Math/MathML"&&Ko.test($))&&(i="http://www.w3.org/1999/xhtml"),mi(u,Kn(d)?d:[d],t,n,r,i,s,o,s?s[0]:
n.__k&&Dt(n,0),a,l),s&&s.some(Ht)),a&&$!="textarea"||(c="value",$=="progress"&&b==null?e.removeAttribute(c):b==null||b===e[c]&&($!="progress"||b)||Fe(e,c,b,w[c],
i),c="checked",v!=null&&v!=e[c]&&Fe(e,c,v,w[c],i))}else w===x||a&&e.data==x||(e.data=x);return e}function Yn(e,t,n,r){try{typeof e=="function"?t?t.__x=e(t)||1:r&&
(r=r.__c||r.__e)&&(t=r.__x)&&(r.__x=null,typeof t=="function"?t():e(null)):e.current=t}catch(i){D.__e(i,n)}}function jn(e,t,n){var r,i,s,o;if(D.unmount&&D.unmount(
e),!(r=e.ref)||r.current&&r.current!=e.__e||Yn(r,null,t,e),r=e.__c){if(r.componentWillUnmount)try{r.componentWillUnmount()}catch(a){D.__e(a,t)}r.__P=r.__n=null}
if(r=e.__k)for(o=0;o<r.length;o++)r[o]&&jn(r[o],t,typeof e.type!="function"||n&&!e.props.__P);!n&&(r=e.__c)&&(r=r.__z)&&(i=He(r,s=[]))&&(r==e.__e&&s.some(Ht),Ht(
i),Ht(r)),n||Ht(e.__e),e.__e=e.__c=e.__=null}function Jo(e,t,n){return this.constructor(e,n)}function oe(e,t){var n,r,i,s;D.__&&D.__(e,t),t.nodeType==9&&(t=t.documentElement),
r=(n=e&&32&e.__u)?null:t.__k,t.__k=We(se,{children:[e]}),i=[],s=[],Xn(t,t.__k,r||qe,qe,t.namespaceURI,r?null:t.firstChild?hi.call(t.childNodes):null,i,r?r.__e:t.
firstChild,n,s),yi(i,t.__k,s),t.__k.props.children=null}D={__e:function(e,t,n,r){for(var i,s,o;t=t.__;)if((i=t.__c)&&!(1&i.__g)){i.__g|=4;try{if((o=(s=i.constructor)&&s.getDerivedStateFromError)&&i.setState(s.getDerivedStateFromError(
e)),i.componentDidCatch&&(i.componentDidCatch(e,r||{}),o=1),o&&8&i.__g)return void(i.__g|=2)}catch(a){e=a}}throw Ge=0,e}},ui=0,Go=function(e){return e!=null&&e.
constructor===xe},G.prototype.setState=function(e,t){var n=this.__s;n&&n!=this.state||(n=this.__s=Gt({},this.state)),typeof e=="function"&&(e=e(Gt({},n),this.props)),
e&&(Gt(n,e),this.__v&&(t&&this.__k.push(t),ai(this)))},G.prototype.forceUpdate=function(e){this.__v&&(this.__g|=4,e&&this.__h.push(e),ai(this))},G.prototype.render=
se,Ut=[],Ge=0,ci=function(e,t){return e.__v.__b-t.__v.__b},Ve=Symbol(),fi=/(PointerCapture)$|Capture$/i,qn=0,Gn={},qo=0;var vi=["B","KiB","MiB","GiB","TiB","PiB"];function T(e){let t=0;for(;e>=999.5&&t<vi.length-1;)[e,t]=[e/1024,t+1];return`${xi(e,t===0)} ${vi[t]}`}var wi=["","k",
"M","G","T","P","E"];function ke(e){let t=0;for(;e>=999.5&&t<wi.length-1;)[e,t]=[e/1e3,t+1];return`${xi(e,t===0)} ${wi[t]}`.trim()}function ae(e){let t=ke(e);return/\d$/.
test(t)?`${t} FLOP`:`${t}FLOP`}function xi(e,t){return t?String(Math.round(e)):e>=99.95?e.toFixed(0):e>=9.995?e.toFixed(1):e.toFixed(2)}function Me(e){return e?
`, ${ae(e)} in products`:""}function O(e){return e.toLocaleString("en-US")}function Bt(e){if(e===null)return"–";if(e===0||Number.isInteger(e)&&Math.abs(e)<1e6)
return O(e);let t=Math.abs(e);return t>=.001&&t<1e5?String(Number(e.toPrecision(4))):e.toExponential(2)}var zt={added:"+",removed:"−",changed:"~"};function J(e,t){
return`${O(e)} ${t}${e===1?"":"s"}`}function ki(e){let t=e.split(".");return t.length>=3?t[t.length-2]:t[t.length-1]}var ta='system-ui, "Segoe UI", Helvetica, A\
rial, sans-serif',_i=100,ea={normal:new Map,bold:new Map},Xe=null;function Mi(e,t){let n=ea[t?"bold":"normal"],r=n.get(e);if(r!==void 0)return r;if(typeof document>
"u")return .6;if(Xe??=document.createElement("canvas").getContext("2d"),!Xe)return .65;Xe.font=`${t?600:400} ${_i}px ${ta}`;let i=Xe.measureText(e).width/_i;return n.
set(e,i),i}function R(e,t,n=!1){let r=0;for(let i of e)r+=Mi(i,n);return r*t}function St(e,t,n,r=!1){if(R(e,n,r)<=t)return e;let[i,s]=[t-R("…",n,r),0];for(let o of e){
if(i-=Mi(o,r)*n,i<0)break;s+=o.length}return s?`${e.slice(0,s).trimEnd()}…`:""}var na=/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]/gu;
function rt(e){return e.replace(na,t=>`\\u${t.charCodeAt(0).toString(16).padStart(4,"0")}`)}var ra=[["attention",/^_?(scaled_dot_product|flash_attention|efficient_attention|flex_attention)/],
["convolution",/^(_?conv|convolution|cudnn_conv|mkldnn_conv|slow_conv|thnn_conv)/],["matmul",/^_?(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|matmul|linear|scaled_mm|int_mm|grouped_mm|weight_int\w*)(_\w+)?$/],
["norm",/(layer|batch|group|rms|instance)_norm|^_?(weight_norm|native_\w*norm)|cudnn_batch_norm/],["softmax",/softmax/],["embedding",/embedding|^gather|^scatter|index|^take/],
["pool",/pool|upsample|interpolate|grid_sample/],["random",/dropout|^(rand|bernoulli|normal|uniform|multinomial|philox)/],["reduction",/^(sum|mean|var|std|amax|amin|max|min|argmax|argmin|any|all|prod|logsumexp|norm|linalg_vector_norm|cum\w+|nll_loss\w*|mse_loss\w*)(_|$)/],
["creation",/^(full|zeros|ones|empty|arange|new_|scalar_tensor|eye|tril|triu|linspace)/],["copy",/^(clone|_to_copy|copy|contiguous|cat|stack|constant_pad|roll|flip|sort|topk)/]];
function $i(e,t,n){return n?"guard":t?"view":ra.find(([,r])=>r.test(e))?.[0]??"pointwise"}var vt=["added","removed","changed"],Zn=1,Ei=2,Oi=4,Qn=8,le=class extends Error{constructor(n,r){super();this.where=n;this.what=r}where;what;get message(){return`${this.
where}: ${this.what}`}},Si=["program","module","loop","turn","line","steps","region"];function Ye(e,t){throw new le(e,t)}function A(e,t,n){e||Ye(t,n)}function tt(e){
let t=JSON.stringify(e)??"nothing";return t.length>60?`${t.slice(0,60)}…`:t}function ht(e,t){return A(typeof e=="object"&&e!==null&&!Array.isArray(e),t,`an ob\
ject was expected, found ${tt(e)}`),e}function qt(e,t){return A(Array.isArray(e),t,`a list was expected, found ${tt(e)}`),e}function at(e,t){A(typeof e=="string",
t,`a text was expected, found ${tt(e)}`)}function Et(e,t,n,r){Number.isSafeInteger(e)&&e>=t&&e<n||Ye(r,`${tt(e)} is not a whole number from ${t} to ${n===1/0?"2\
**53 - 1":n-1}`)}function Y(e,t){typeof e=="number"&&Number.isFinite(e)&&e>=0||Ye(t,`${tt(e)} is not a number of 0 or more`)}function U(e,t,n){let r=qt(e,t),i=0;
try{for(;i<r.length;i++)n(r[i],"",i)}catch(s){throw s instanceof le&&(s.where=`${t}[${i}]${s.where}`),s}}function ft(e,t,n){let r=qt(e,t);A(r.length===n.length,
t,`${n.length} entries were expected, found ${r.length}`),U(r,t,(i,s,o)=>n[o](i,s))}var z=(e,t)=>(n,r)=>Et(n,e,t,r);function ia(e,t){let n=ht(e.nodes,`${t}.node\
s`),r=qt(n.name,`${t}.nodes.name`).length,[i,s]=[z(0,e.strings.length),z(0,1/0)],o={name:i,op:i,args:i,spec:i,echo:i,source:z(-1,e.sources.length),frame:z(0,e.frames.
length),flops:Y,read:s,written:s,memory:s,flags:z(0,16),inputs:(a,l)=>U(a,l,z(0,r+e.ports.length)),partners:(a,l)=>U(a,l,z(0,e.forward))};for(let[a,l]of Object.
entries(o)){let u=qt(n[a],`${t}.nodes.${a}`);A(u.length===r,`${t}.nodes.${a}`,`${r} entries were expected, one a step, found ${u.length}`),U(u,`${t}.nodes.${a}`,
l)}Et(e.forward,0,r+1,`${t}.forward`)}function sa(e,t){let n=e.nodes.name.length,r=z(0,e.strings.length),i=e.ports.filter(a=>a.into).length;U(e.ports,`${t}.port\
s`,(a,l)=>{let u=ht(a,l);Et(u.side,0,2,`${l}.side`),A(typeof u.into=="boolean",`${l}.into`,`true or false was expected, found ${tt(u.into)}`),at(u.role,`${l}.ro\
le`),r(u.name,`${l}.name`),r(u.spec,`${l}.spec`),Y(u.bytes,`${l}.bytes`),Et(u.value,u.into?n:-1,n+i,`${l}.value`)});let s=n;e.ports.forEach((a,l)=>{a.into&&A(a.
value===s++,`${t}.ports[${l}].value`,`${s-1} was expected, found ${a.value}`)});let o=z(0,n+i);U(e.nodes.inputs,`${t}.nodes.inputs`,(a,l)=>U(a,l,o)),U(e.saved,`${t}\
.saved`,(a,l)=>ft(a,l,[o,z(n,n+i),Y,Y]))}function oa(e,t){let{frames:n,layouts:r,nodes:i}=e,s=z(0,e.strings.length),o={steps:new Uint8Array(i.name.length),frames:new Uint8Array(
n.length)};A(n.length>0,`${t}.frames`,"there is no frame"),n.forEach((l,u)=>{let c=`${t}.frames[${u}]`;s(l.name,`${c}.name`),s(l.label,`${c}.label`),A(Si.includes(
l.kind),`${c}.kind`,`${tt(l.kind)} is none of ${Si.join(", ")}`),Et(l.parent,u?0:-1,u?n.length:0,`${c}.parent`),Et(l.layout,l.kind==="loop"?-1:0,l.kind==="loop"?
0:r.length,`${c}.layout`),ft(l.counts,`${c}.counts`,[Y,Y,Y,Y,Y]),U(l.units,`${c}.units`,z(-n.length,i.name.length)),A(l.kind!=="loop"||l.units.length,c,"a loop \
without a turn");for(let h of l.units){let[p,d]=h<0?[o.frames,-h-1]:[o.steps,h];A(!p[d]++,c,`${h<0?"frame":"step"} ${d} is in two frames`);let m=h<0?n[d].parent:
i.frame[d];A(m===u,c,`${h<0?"frame":"step"} ${d} says that it is in frame ${m}`),A(l.kind!=="loop"||h<0,c,`step ${d} is a turn of a loop`)}});let a=o.steps.indexOf(
0);A(a<0,`${t}.frames`,`step ${a} is in no frame`),n.forEach((l,u)=>{let[c,h]=[u,n.length];for(;c>0&&h--;)A(o.frames[c],`${t}.frames[${c}]`,"it is in no frame"),
c=n[c].parent;A(c<=0,`${t}.frames[${u}]`,"it is inside itself")}),n.forEach((l,u)=>{l.layout>=0&&ca(r[l.layout],l,e.forward,`${t}.frames[${u}]`)}),la(e,t)}var aa=[
"steps forward","steps backward","saved bytes","FLOPs forward","FLOPs backward"];function la(e,t){let{frames:n,nodes:r,forward:i}=e,s=new Map;for(let[a,,,l]of e.
saved)s.set(a,(s.get(a)??0)+l);let o=n.map(()=>[0,0,0,0,0]);r.name.forEach((a,l)=>{let u=o[r.frame[l]],c=l<i?0:1;u[c]+=1,u[2]+=s.get(l)??0,u[3+c]+=r.flops[l]});
for(let a of ua(n).reverse())a&&o[a].forEach((l,u)=>{o[n[a].parent][u]+=l});n.forEach((a,l)=>a.counts.forEach((u,c)=>A(u===o[l][c]||u>Number.MAX_SAFE_INTEGER,`${t}\
.frames[${l}].counts`,`it says ${u} ${aa[c]}, and its steps add up to ${o[l][c]}`)))}function ua(e){let t=[0];for(let n of t)for(let r of e[n].units)r<0&&t.push(
-r-1);return t}function ca(e,t,n,r){let i=new Uint8Array(t.units.length);for(let s of e.rows)s.forEach((o,a)=>{for(let l of o)A(l<t.units.length&&!i[l]++,r,`its\
 layout gives ${l} no place, or two`),A(t.units[l]<0==(a===1),r,`its layout takes unit ${l} for a ${a===1?"frame":"step"}`),A(a===1||t.units[l]<n==(a===0),r,`it\
s layout has step ${t.units[l]} on the side of the ${a?"backward":"forward"}`)});A(i.every(Boolean),r,`its layout has no place for unit ${i.indexOf(0)}`)}function fa(e,t){
U(e.layouts,`${t}.layouts`,(n,r)=>{let i=ht(n,r),s=0;U(i.rows,`${r}.rows`,(a,l)=>{ft(a,l,[0,1,2].map(()=>(u,c)=>U(u,c,z(0,1/0)))),s+=a.flat().length}),ft(i.slots,
`${r}.slots`,[z(0,1e5),z(0,1e5)]);let o=z(-1,s);["left","right"].forEach((a,l)=>U(i[a],`${r}.${a}`,(u,c)=>ft(u,c,[o,o,z(-1,i.slots[l]),z(0,e.strings.length),Y]))),
U(i.bridges,`${r}.bridges`,(a,l)=>ft(a,l,[o,o,Y,Y]))})}function ha(e,t){let n=e.nodes.name.length,r=ht(e.memory,`${t}.memory`);Y(r.before,`${t}.memory.before`),
U(r.live,`${t}.memory.live`,Y),A(e.memory.live.length===n,`${t}.memory.live`,`${n} entries were expected, one a step, found ${e.memory.live.length}`);let i=z(-1,
n+e.ports.length),s=(o,a)=>ft(o,a,[i,z(0,n+1),z(0,n+1),Y,z(0,e.strings.length)]);for(let o of["spans","held"])U(r[o],`${t}.memory.${o}`,s);ft(r.peak,`${t}.memor\
y.peak`,[z(-1,Math.max(n,1)),Y]),da(e.memory,n,`${t}.memory`)}function da({live:e,spans:t,peak:n},r,i){let s=new Float64Array(r+2);for(let[,l,u,c]of t)s[l]+=c,s[u+
1]-=c;let o=0;for(let l=0;l<r;l++)o+=s[l],A(e[l]===o||o>Number.MAX_SAFE_INTEGER,`${i}.live[${l}]`,`it says ${e[l]} bytes, and its spans add up to ${o}`);let a=e.
reduce((l,u)=>Math.max(l,u),0);A(n[1]===a&&(!r||e[n[0]]===a),`${i}.peak`,`it says ${n[1]} bytes at step ${n[0]}, and the most that live are ${a}`)}function pa(e,t){
if(e.stats===void 0)return;let{value:n,rows:r}=ht(e.stats,t);U(n,`${t}.value`,z(0,e.nodes.name.length+e.ports.length)),U(r,`${t}.rows`,(i,s)=>{A(qt(i,s).length===
9,s,`9 numbers were expected, found ${i.length}`),U(i,s,(o,a)=>A(o===null||Number.isFinite(o),a,`${tt(o)} is not a number`))}),A(n.length===r.length,t,`${n.length}\
 values and ${r.length} rows`)}var ma={added:["+ "],removed:["- "],changed:["- ","+ "]};function ga(e,t){let n=ht(e.marks,t),r=e.nodes.name.length;Et(n.pair,-1,
1/0,`${t}.pair`),U(n.node,`${t}.node`,(i,s,o)=>Et(i,o?n.node[o-1]+1:0,r,s));for(let i of["kind","text","other"]){let s=qt(n[i],`${t}.${i}`).length;A(s===n.node.
length,`${t}.${i}`,`${n.node.length} entries were expected, one a marked step, found ${s}`)}U(n.kind,`${t}.kind`,(i,s)=>A(vt.includes(i),s,`${tt(i)} is none of ${vt.
join(", ")}`)),U(n.text,`${t}.text`,(i,s,o)=>{at(i,s);let a=i.split(`
`),l=ma[n.kind[o]];A(a.length===l.length&&l.every((u,c)=>a[c].startsWith(u)),s,`${l.length===1?"a line":"two lines"} with ${l.join("and ").trim()} in front was \
expected of a step that was ${n.kind[o]}, found ${tt(i)}`)})}function ba(e){e.forEach(({marks:t},n)=>{let r=`pairs[${n}].marks`,{pair:i,node:s,kind:o,text:a,other:l}=t,
u=e[i]?.marks;Et(i,-1,e.length,`${r}.pair`),A(u?u.pair===n&&i!==n:i<0,`${r}.pair`,`pair ${i} says that its other pair is ${u?.pair}`);let c=new Map(u?.node.map(
(h,p)=>[h,p]));U(l,`${r}.other`,(h,p,d)=>{if(o[d]!=="changed")return A(h===-1,p,`-1 was expected of a step that was ${o[d]}, found ${tt(h)}`);let m=c.get(h)??-1;
A(m>=0&&u.other[m]===s[d]&&u.text[m]===a[d],p,`step ${tt(h)} of pair ${i} is not marked as what this step was or became`)})})}function ya(e,t){let n=ht(e,t);at(
n.name,`${t}.name`),U(n.strings,`${t}.strings`,at),A(n.strings[0]==="",`${t}.strings`,"the first is not the empty text");for(let s of["ports","sources","saved",
"frames","layouts"])qt(n[s],`${t}.${s}`);U(n.frames,`${t}.frames`,ht);let r=z(0,n.strings.length);U(n.sources,`${t}.sources`,(s,o)=>ft(s,o,[r,z(0,1/0),r,r,r])),
ia(n,t),sa(n,t),fa(n,t),oa(n,t),ha(n,t);let i=ht(n.code,`${t}.code`);for(let s of[i.forward,i.backward])U(s,`${t}.code`,at);ft(i.ends,`${t}.code.ends`,[0,1].map(
()=>(s,o)=>U(s,o,at))),pa(n,`${t}.stats`),n.marks!==void 0&&ga(n,`${t}.marks`)}function Ci(e){let t;try{t=JSON.parse(e)}catch(o){Ye("data",`they are not JSON (${o.
message})`)}let n=ht(t,"data");A(n.format===1,"format",`this page reads format 1, found ${tt(n.format)}; write the page again with this version of Backprint`),at(
n.title,"title"),U(n.facts,"facts",(o,a)=>ft(o,a,[at,at])),U(n.notes,"notes",at);let r=ht(n.verdict,"verdict");for(let o of["word","meaning","tone"])at(r[o],`ve\
rdict.${o}`);A(["good","bad","none"].includes(n.verdict.tone),"verdict.tone",`it is ${tt(n.verdict.tone)}, and none of good, bad, none`),U(n.pairs,"pairs",ya),A(
n.pairs.length,"pairs","there is none");let i=n.changes!==void 0;i&&U(n.changes,"changes",at),n.pairs.forEach((o,a)=>A(o.marks!==void 0===i,`pairs[${a}].marks`,
i?"the page has changes, and this pair has no marks":"this pair has marks, and the page has no changes")),i&&ba(n.pairs);let s=n.pairs.map(o=>({...o,name:rt(o.name)}));
return{...n,title:rt(n.title),facts:n.facts.map(([o,a])=>[rt(o),rt(a)]),notes:n.notes.map(rt),verdict:{...n.verdict,word:rt(n.verdict.word),meaning:rt(n.verdict.
meaning)},...n.changes&&{changes:n.changes.map(rt)},pairs:s}}var V=e=>-e-1,je=class{constructor(t,n=""){this.data=t;this.called=n;let{nodes:r,frames:i}=t;this.count=r.name.length,this.strings=t.strings.map(rt),this.entering=
t.ports.filter(s=>s.into),this.shorts=r.op.map(s=>ki(this.strings[s])),this.kinds=this.shorts.map((s,o)=>$i(s,(r.flags[o]&Zn)!==0,(r.flags[o]&Ei)!==0)),[this.starts,
this.users]=va(r.inputs,this.count+this.entering.length),this.pulled=wa(r.partners,this.count),this.place=new Int32Array(this.count),this.framePlace=new Int32Array(
i.length);for(let s of i)s.units.forEach((o,a)=>(o<0?this.framePlace:this.place)[o<0?-o-1:o]=a);[this.alike,this.depth]=this.structure(),this.deepest=this.depth.
reduce((s,o)=>Math.max(s,o),0),this.timed=t.memory.spans.length>0||t.memory.peak[1]>0||t.memory.before>0,this.savedFrom=new Map;for(let[s,o,a,l]of t.saved)$e(this.
savedFrom,s).push([o,a,l]);this.pills=this.portPills(),this.neighbors=r.flags.some(s=>s&Qn),this.bad=new Map,t.stats?.value.forEach((s,o)=>{let[a,l]=[t.stats.rows[o][6],
t.stats.rows[o][7]];(a||l)&&this.bad.set(s,{nan:a,inf:l})}),t.marks?.node.forEach((s,o)=>this.mark(s,o)),this.badFrames=new Set([...this.bad.keys()].filter(s=>s<
this.count).flatMap(s=>this.above(s)))}data;called;count;strings;entering;shorts;kinds;starts;users;pulled;place;framePlace;alike;depth;deepest;pills;timed;bad;badFrames;savedFrom;marks=new Map;marked=new Map;neighbors;lines;paths;lineAt;mark(t,n){
let{kind:r,text:i,other:s}=this.data.marks,a=i[n].split(`
`).map(l=>[l.startsWith("-")?"before":"after",rt(l.slice(2))]);this.marks.set(t,{kind:r[n],texts:a,other:s[n]});for(let l of this.above(t)){let u=this.marked.get(
l)??Object.fromEntries(vt.map(c=>[c,0]));this.marked.set(l,u),u[r[n]]++}}isNeighbor(t){return(this.data.nodes.flags[t]&Qn)!==0}text(t){return this.strings[t]}frame(t){
return this.data.frames[t]}isForward(t){return t<this.data.forward}nameOf(t){return t<0?"a constant":t<this.count?this.strings[this.data.nodes.name[t]]:this.portName(
this.entering[t-this.count])}portName({role:t,name:n},r=!1){let i=this.strings[n],s=r?i.split(".").at(-1):i;return t==="gradient"||t==="tangent"?`∂${s}`:s}specOf(t){
return t<0?"":this.strings[t<this.count?this.data.nodes.spec[t]:this.entering[t-this.count].spec]}usersOf(t){return[...this.users.subarray(this.starts[t],this.starts[t+
1])]}lineOf(t){let n=this.data.sources[this.data.nodes.source[t]];return n?`${this.strings[n[0]]}:${n[1]}`:""}moduleOf(t){let n=this.data.sources[this.data.nodes.
source[t]];return n?this.strings[n[4]]:""}savedSum(){let t={own:[0,0],rest:[0,0]};for(let[,,n,r]of this.data.saved){let i=r?t.own:t.rest;i[0]++,i[1]+=r||n}return t}isSaved(t){
return(this.data.nodes.flags[t]&Oi)!==0}isView(t){return(this.data.nodes.flags[t]&Zn)!==0}above(t){let n=[];for(let r=t<0?this.frame(-t-1).parent:this.data.nodes.
frame[t];r>=0;r=this.frame(r).parent)n.push(r);return n}title(t){let{name:n,parent:r,kind:i,label:s}=this.frame(t);if(r<0&&this.called)return this.called;let[o,
a]=[this.strings[n],r>=0?this.strings[this.frame(r).name]:""];return(a&&o.startsWith(`${a}.`)?o.slice(a.length+1):o)||this.strings[s]||i}isTurn(t){let{parent:n}=this.
frame(t);return n>=0&&this.frame(n).kind==="loop"}path(t){return(this.paths??=this.allPaths())[t]}allPaths(){let t=[],n=r=>{if(t[r]!==void 0)return t[r];let{name:i,
parent:s,kind:o}=this.frame(r),a=s>0?n(s):"",l=o==="loop"?this.strings[i].replace(/\.?\d+…\d+$/,""):this.strings[i];return t[r]=s<0?"":[a,l].filter(Boolean).join(
o==="line"?" ":".")};return this.data.frames.forEach((r,i)=>n(i)),t}*inside(t){for(let n of this.frame(t).units)n>=0?yield n:yield*this.inside(-n-1)}call(t){let{
op:n,args:r,inputs:i}=this.data.nodes,s=this.strings[r[t]].replace(/\{(\d+)\}/g,(o,a)=>a in i[t]?this.nameOf(i[t][a]):o);return`${this.strings[n[t]]}(${s})`}echoOf(t){
let{echo:n,partners:r}=this.data.nodes,i=this.strings[n[t]];return i&&`${i} ${r[t].map(s=>this.nameOf(s)).join(", ")}`}code(){if(this.lines)return this.lines;let{
forward:t,code:n}=this.data,r=[],i=a=>r.push({node:-1,text:rt(a)}),s="",o=(a,l)=>{for(let u=a;u<l;u++){let c=[this.echoOf(u),this.moduleOf(u),this.lineOf(u)].filter(
Boolean).join("; ");c&&c!==s&&r.push({node:u,text:`# ${s=c}`}),r.push({node:u,text:null})}};return n.forward.forEach(i),o(0,t),n.ends[0].forEach(i),(this.count>
t||n.backward.length)&&i(""),n.backward.forEach(i),o(t,this.count),n.ends[1].forEach(i),this.lineAt=new Int32Array(this.count),r.forEach((a,l)=>{a.node>=0&&(this.
lineAt[a.node]=l)}),this.lines=r}lineOfCode(t){return this.code(),this.lineAt[t]}structure(){let{frames:t}=this.data,n=new Map,[r,i]=[new Int32Array(t.length),new Int32Array(
t.length)],s=(o,a,l)=>{let u=a>=0&&t[t[o].parent].kind==="loop",c=`${a}:${u?"*":this.framePlace[o]}`;n.has(c)||n.set(c,n.size),r[o]=n.get(c),i[o]=l;for(let h of t[o].
units)h<0&&s(-h-1,r[o],u?l:l+1)};return s(0,-1,0),[r,i]}portPills(){let t=new Map,n=i=>t.get(i)??(t.set(i,{outer:[],made:[]}),t.get(i)),r=i=>({text:this.portName(
i,!0),title:`${i.role} ${this.strings[i.name]} ${this.strings[i.spec]}`,role:i.role});for(let i of this.entering)if(i.role==="parameter"||i.role==="buffer")for(let s of this.
usersOf(i.value))n(s).outer.push(r(i));for(let i of this.data.ports)!i.into&&i.role!=="saved"&&i.value>=0&&i.value<this.count&&n(i.value).made.push(r(i));return t}};
function $e(e,t){let n=e.get(t)??[];return e.set(t,n),n}function va(e,t){let n=new Int32Array(t+1),r=e.map(o=>[...new Set(o)]);for(let o of r)for(let a of o)n[a+
1]++;for(let o=0;o<t;o++)n[o+1]+=n[o];let i=n.slice(),s=new Int32Array(n[t]);return r.forEach((o,a)=>o.forEach(l=>s[i[l]++]=a)),[n,s]}function wa(e,t){let n=Array.
from({length:t},()=>[]);return e.forEach((r,i)=>r.forEach(s=>n[s].push(i))),n}var _a=Symbol.for("pv"),xa=0;function f(e,t,n,r,i,s){t||(t={});var o,a,l=t;if("ref"in l&&typeof e!="function")for(a in l={},t)a=="ref"?o=t[a]:l[a]=t[a];var u={type:e,props:l,key:n,ref:o,__k:null,
__:null,__b:0,__e:null,__c:null,constructor:_a,__v:--xa,__i:-1,__u:0};return(i||s)&&(u.__source=i,u.__self=s),D.vnode&&D.vnode(u),u}function Pi(e){return e.flatMap((t,n)=>{let r=new Map,i=(t.data.marks?.pair??-1)<n;for(let[s,o]of t.marks)(o.other<0||!i)&&$e(r,Ni(t,s)).push({pair:n,node:s});return[
...r.values()].flat()})}function Ni(e,t){let n=e.data.nodes.frame[t];return e.moduleOf(t)||e.path(n)||e.title(n)}function Jn(e,t,n,r){let{marks:i,data:s}=t[n],o=s.
marks?.pair,a=r===null?void 0:i.get(r)?.other;return e.findIndex(l=>l.pair===n&&l.node===r||l.pair===o&&l.node===a)}function tr(e,t){let n=e.marked.get(t);return n?
vt.filter(r=>n[r]).map(r=>`${O(n[r])} ${r}`).join(", "):""}function er({page:e,model:t,node:n,jump:r}){let{kind:i,texts:s,other:o}=t.marks.get(n),{pair:a}=t.data.
marks;return f("div",{class:"change",children:[f("p",{children:[f("b",{class:"sign",children:zt[i]})," ",i,o>=0&&", ",o>=0&&f("button",{class:"link",onClick:()=>r(
a,o),children:["see ",f("bdi",{children:e.pairs[a].name})]})]}),f("dl",{children:s.map(([l,u])=>[f("dt",{children:l},l),f("dd",{children:f("code",{children:f("b\
di",{children:u})})},`${l} `)])})]})}var ka=200,Ma=100,Ze=class extends G{state={lines:ka,rows:Ma};chosen=ct();componentDidUpdate(t){t.at!==this.props.at&&this.
chosen.current?.scrollIntoView({block:"nearest"})}row(t,n){let{page:r,models:i,jump:s,at:o}=this.props,a=i[t.pair],{kind:l}=a.marks.get(t.node);return f("li",{class:n===
o?"chosen":"",ref:n===o?this.chosen:null,"aria-current":n===o,children:[f("b",{class:"sign",title:l,children:zt[l]}),f("button",{class:`link ${a.isForward(t.node)?
"forward":"backward"}`,title:a.call(t.node),onClick:()=>s(t.pair,t.node),children:f("bdi",{children:a.nameOf(t.node)})}),f("code",{class:"soft",children:a.specOf(
t.node)}),n===o&&f(er,{page:r,model:a,node:t.node,jump:s})]},`${t.pair} ${t.node}`)}rows(t){let{page:n,models:r,marked:i}=this.props,s=({pair:o,node:a})=>`${n.pairs[o].
name}, ${Ni(r[o],a)}`;return i.slice(0,t).flatMap((o,a)=>{let l=this.row(o,a),u=s(o);return a&&s(i[a-1])===u?[l]:[f("li",{class:"head",children:f("bdi",{children:u})},
`${a} head`),l]})}render({page:t,marked:n,at:r}){let i=t.changes,{lines:s,rows:o}=this.state,a=Math.max(o,r+20);return f("div",{class:"panel",children:[f("h2",{
children:"Changes"}),f("div",{class:"said",children:i.slice(0,s).map((l,u)=>f("div",{class:/^\s+[-+~!]/.test(l)?"one":"",children:f("bdi",{children:l})},u))}),i.
length>s&&f("button",{class:"more",onClick:()=>this.setState({lines:1/0}),children:["show more: ",O(s)," of ",J(i.length,"line")]}),f("h3",{children:"Steps"}),n.
length?f("ul",{class:"marked",children:this.rows(a)}):f("p",{class:"soft",children:"No step is marked."}),n.length>a&&f("button",{class:"more",onClick:()=>this.
setState({rows:a*5}),children:["show more: ",O(a)," of ",O(n.length)]})]})}};var Kt=18,Qe=class extends G{state={from:0,count:60};box=ct();watcher=new ResizeObserver(()=>this.scrolled());componentDidMount(){this.watcher.observe(this.box.
current),this.follow()}componentWillUnmount(){this.watcher.disconnect()}componentDidUpdate(t){(t.selected!==this.props.selected||t.model!==this.props.model)&&this.
follow()}target(){let{model:t,selected:n}=this.props;return n===null||n>=0?n:t.inside(-n-1).next().value??null}follow(){let t=this.target(),n=this.box.current;if(t!==
null){let r=this.props.model.lineOfCode(t)*Kt;(r<n.scrollTop+Kt||r>n.scrollTop+n.clientHeight-2*Kt)&&(n.scrollTop=r-n.clientHeight/2)}this.scrolled()}scrolled=()=>{
let t=this.box.current,n=Math.max(0,Math.floor(t.scrollTop/Kt)-10),r=Math.ceil(t.clientHeight/Kt)+20;(n!==this.state.from||r!==this.state.count)&&this.setState(
{from:n,count:r})};step(t){let{model:n}=this.props,{op:r,args:i,inputs:s,spec:o}=n.data.nodes,a=[];return n.text(i[t]).split(/\{(\d+)\}/).forEach((u,c)=>{c%2===
0?a.push(u):Number(u)<s[t].length?a.push(f("span",{class:"value",children:f("bdi",{children:n.nameOf(s[t][Number(u)])})})):a.push(`{${u}}`)}),[f("b",{class:n.isForward(
t)?"forward":"backward",children:f("bdi",{children:n.nameOf(t)})}),": ",f("i",{children:['"',n.text(o[t]),'"']})," = ",f("span",{class:"op",children:n.text(r[t])}),
"(",...a,")"]}render({model:t,selected:n,lit:r,go:i}){let s=t.code(),{from:o,count:a}=this.state,l="    ";return f("div",{class:"code",ref:this.box,tabIndex:0,onScroll:this.
scrolled,"data-lines":s.length,children:f("div",{class:"sheet",style:{height:`${s.length*Kt}px`},children:s.slice(o,o+a).map((u,c)=>{let h=u.node>=0&&u.node===n,
p=u.node>=0&&r?.has(u.node),d=t.marks.get(u.node);return f("div",{class:`row${h?" chosen":p?" lit":""}${u.text===null?"":u.node>=0?" note":""}`,style:{top:`${(o+
c)*Kt}px`},onClick:u.node>=0?()=>i(u.node):void 0,children:[f("span",{class:"no",children:[d&&u.text===null&&f("b",{class:"sign",children:[zt[d.kind]," "]}),o+c+
1]}),u.text===null?[l,l,this.step(u.node)]:u.node>=0?l+l+u.text:u.text]},o+c)})})})}};var Ai=({wide:e,high:t},n,r)=>Math.min(e/n,t/r);function Li(e,t,n,r){let i=Ai(e,t,n),[s,o]=[[],i*1.3];if(i>=.6)return s;for(let a=2;a<=12;a++){let l=$a(a,n,r),u=[
0,...l.map(p=>p.y),n],c=Math.max(...u.slice(1).map((p,d)=>p-u[d])),h=Ai(e,a*(t+40),c+80);l.length===a-1&&h>o*1.02&&([s,o]=[l,h])}return s}function $a(e,t,n){let r=[];
for(let i=1;i<e;i++){let s=t*i/e,o=r.at(-1)?.y??0,a=.12*t/e,l=c=>Math.abs(c.y-s)+c.level*60+(c.part<a?a:0),u=null;for(let c of n)c.y>o+t/e/3&&(!u||l(c)<l(u))&&(u=
c);u&&r.push(u)}return r}function Ti(e,t,n,r){let i=[0,...e,n];return{ends:i,head:r,moved:i.slice(0,-1).map((s,o)=>[o*(t+40),o?r+28-s:0])}}function Je({ends:e},t){
let n=0;for(;n<e.length-2&&e[n+1]<=t;)n++;return n}function Ii(e,t){let n=Je(t,e.y),r=Je(t,e.y+e.h-.01),i=Array.from({length:r-n+1},(u,c)=>{let h=n+c,[p,d]=t.moved[h],
m=Math.max(e.y,t.ends[h]),b=Math.min(e.y+e.h,t.ends[h+1]),v=e.around===null&&h?0:m+d;return{x:e.x+p,y:v,w:e.w,h:b+d-v,mid:e.mid+p}}),{x:s,y:o,h:a,mid:l}=i[0];return{
...e,x:s,y:o,h:a,mid:l,column:n,...i.length>1&&{parts:i}}}function Ui(e,t,n){let r=Oa(t,n),i=[];if(e.within===0)for(let s of r)Sa(s,n,e.side==="bridge"?0:n.head);
return r.forEach(({column:s,parts:o},a)=>{let[l,u]=n.moved[s],c=([w,x])=>[w+l,x+u],h=([,w])=>Je(n,w)===s,p=o.flatMap(([,...w])=>w.map(c)),[d,m]=[p.map(w=>w[0]),
p.map(w=>w[1])],[b,v]=[Math.min(...d),Math.min(...m)],g=o.map(([w,...x])=>w+x.map($=>c($).map(Ea).join(",")).join(" ")).join("");i.push({...e,d:g,at:r.findIndex(
w=>w.column===s)===a?e.at.filter(h).map(c):[],ends:[p[0],p[p.length-1]],goesOn:a<r.length-1,box:[b,v,Math.max(...d)-b,Math.max(...m)-v]})}),i}function Sa({column:e,
parts:t},{ends:n,moved:r},i){if(!e)return;let s=t[0][1],o=t.at(-1).at(-1),a=i-r[e][1];o[1]===n[e]&&t.push(["L",[o[0],a]]),s[1]===n[e]&&t.splice(0,1,["M",[s[0],a]],
["L",s])}var Ea=e=>Math.round(e*10)/10;function Oa(e,t){let n=[],[r,i]=[e[0][1],null],s=(o,a)=>n.push({column:a,parts:i=[["M",o]]});for(let[o,...a]of e){if(o===
"M"){[r,i]=[a[0],null];continue}let l=[o,...a];for(let u=0;u<64;u++){let c=l.at(-1),h=c[1]>r[1],p=Ca(t,r[1],h);(!i||n.at(-1).column!==p)&&s(r,p);let d=t.ends[h?
p+1:p];if(!(p>=0&&(h?p+1<t.ends.length-1:p>0))||(h?c[1]<=d:c[1]>=d)){i.push(l),r=c;break}let[b,v]=Pa(r,l,d);i.push(b),r=b.at(-1),l=v,s(r,h?p+1:p-1)}}return n.filter(
o=>o.parts.length>1)}function Ca(e,t,n){let r=Je(e,t);return!n&&r>0&&t===e.ends[r]?r-1:r}function Pa(e,[t,...n],r){let i=[e,...n],s=h=>Na(i,h),o=n.at(-1)[1]>e[1],
[a,l]=[0,1];for(let h=0;h<40;h++){let p=(a+l)/2,d=s(p).left.at(-1)[1];(o?d<r:d>r)?a=p:l=p}let{left:u,right:c}=s((a+l)/2);return u[u.length-1]=c[0]=[u.at(-1)[0],
r],[[t,...u.slice(1)],[t,...c.slice(1)]]}function Na(e,t){let n=[e[0]],r=[e.at(-1)];for(let i=e;i.length>1;)i=i.slice(1).map(([s,o],a)=>[i[a][0]+(s-i[a][0])*t,i[a][1]+
(o-i[a][1])*t]),n.push(i[0]),r.unshift(i.at(-1));return{left:n,right:r}}var et=28,Ot=156,Ee=10,ue=et+Ee+Ot/2,Rt=24,rn=17,ar=28,sn=20,Aa=50,Fi=8,nr=30,Di=14,Vi=10,La=30,it=e=>e.parts??[e];function Yt(e,t,n){return t.open.has(e.alike[n])}
function ce(e,t,n){let{kind:r,units:i}=e.frame(n);return r!=="loop"?n:ce(e,t,-i[Math.min(Ft(e,t,n),i.length-1)]-1)}function Ft(e,t,n){return Math.min(t.turn.get(
e.alike[n])??0,e.frame(n).units.length-1)}var on=.45,fe=e=>e<500?8:24,he=14;function de(e){return Math.min(R(e,he,!0)+10,116)}function an(e,t){let n=e.pills.get(
t),r=[];if(!n)return{left:r,right:r};let i=[...n.outer,...n.made],s=i.length>4?[...i.slice(0,3),{text:`+${i.length-3}`,title:i.slice(3).map(o=>o.title).join(`
`),role:"more"}]:i;return e.isForward(t)?{left:s,right:r}:{left:r,right:s}}function Ta(e,t){let{left:n,right:r}=an(e,t),i=o=>o.length?Math.max(...o.map(a=>de(a.
text)))+5:0,s=Math.max(e.isView(t)?sn:ar,Math.max(n.length,r.length)*rn);return{left:Ot/2+i(n),right:Ot/2+i(r),height:s}}var rr={left:et+Ee+Ot,right:et+Ee+Ot,height:Aa};
function ir(e,t,n,r){if(!Yt(e,t,n))return rr;let i=e.frame(ce(e,t,n)),s=e.data.layouts[i.layout],o=[],a=[],l=[],[u,c,h]=[Rt+nr,rr.left,rr.right];s.rows.forEach(
(m,b)=>{let v=m.map(C=>C.map(S=>{let N=i.units[S];return{unit:N,block:N<0?ir(e,t,-N-1,r):Ta(e,N)}})),g=Math.max(sn,...v.flat().map(C=>C.block.height)),w=(C,S,N)=>{
o.push({unit:C,x:S,y:u+(g-N.height)/2,block:N,row:b}),[c,h]=[Math.max(c,N.left-S),Math.max(h,N.right+S)]},[x,$]=Ia(v[1],w),P=-Math.max(x,et)-Ee;for(let{unit:C,block:S}of v[0].
reverse())[P]=[P-S.right-S.left-12,w(C,P-S.right,S)];P=Math.max($,et)+Ee;for(let{unit:C,block:S}of v[2])[P]=[P+S.right+S.left+12,w(C,P+S.left,S)];a.push(u),l.push(
u+g),u+=g+nr+(r.has(`${n}/${b}`)?La:0)});let[p,d]=[s.slots.map(m=>m?m*Vi+6:0),Math.max(u,Rt+nr)+Fi];return{left:c+p[0]+Di,right:h+p[1]+Di,height:d,inside:o,tops:a,
bottoms:l,walls:[-c-4,h+4]}}function Ia(e,t){if(!e.length)return[0,0];let n=e.reduce((s,{block:o})=>s+o.left+o.right,0)+(e.length-1)*18,r=e.length===1?-e[0].block.
left:-n/2,i=-r;for(let{unit:s,block:o}of e)t(s,r+o.left,o),r+=o.left+o.right+18;return[i,r-18]}function sr(e,t,n,r){let{inside:i,tops:s,bottoms:o,height:a}=t,l=[];
if(!i)return l;s.slice(0,-1).forEach((c,h)=>{let p=(o[h]+s[h+1])/2;l.push({key:`${e}/${h}`,y:n+p,level:r,part:r?Math.min(p,a-p):1/0})});let u=new Map;for(let{row:c}of i)
u.set(c,(u.get(c)??0)+1);for(let c of i)if(!(c.unit>=0||u.get(c.row)!==1))for(let h of sr(-c.unit-1,c.block,n+c.y,r+1))l.push({...h,part:r?Math.min(h.part,h.y-n,
n+a-h.y):h.part});return l}function ln(e,t,n=null){let r=ir(e,t,0,new Set),i=null,s=r.left+r.right,o=n&&r.inside?Li(n,s,r.height,sr(0,r,0,0)):[];if(o.length){let v=new Set(
o.map(g=>g.key));r=ir(e,t,0,v),i=Ti(sr(0,r,0,0).filter(g=>v.has(g.key)).map(g=>g.y).sort((g,w)=>g-w),s,r.height,Rt)}let a=[],l=[],u=ur(e),c=(v,g,w,x,$,P)=>{let C=-v-
1,S=v>=0,N={unit:v,x:w-(S?Ot/2:g.left),y:x,w:S?Ot:g.left+g.right,h:g.height,mid:w,kind:S?"node":g.inside?"open":"folded",level:$,around:P};if(a.push(i?Ii(N,i):N),
!g.inside)return;for(let F of g.inside)c(F.unit,F.block,w+F.x,x+F.y,$+1,v);let Q=ce(e,t,C);l.push(...Ua(e,Q,C,g,w,x,u,i))};c(V(0),r,0,0,0,null);let h=new Map(a.
map(v=>[v.unit,v])),p=new Map;for(let v of l)p.has(v.key)||p.set(v.key,v);let d=it(a[0]),m=Math.max(...d.map(v=>v.x+v.w)),b=Math.max(...d.map(v=>v.y+v.h));return{
boxes:a,lines:l,byUnit:h,lineOf:p,left:-r.left,right:m,height:b,columns:d.length}}function lr(e,t,n,r){return`${e}/${t}/${n??"in"}/${r??"out"}`}function ur(e){let t=Math.
max(1,e.frame(0).counts[2],...e.data.saved.map(n=>n[2]));return n=>Math.min(20,Math.max(1.6,20*Math.cbrt(n/t)))}function Ua(e,t,n,r,i,s,o,a){let l=e.data.layouts[e.
frame(t).layout],{units:u}=e.frame(t),c=new Map(r.inside.map(p=>[p.unit,p])),h=[];for(let p of["left","right"]){let d=Da(l,p,u,c),m=new Set;l[p].forEach((b,v)=>{
let g=Ba(b,p,u,c,r,d[v]),w=e.text(b[3]).replace(/\] .*$/,"]"),x=`${b[0]} ${w}`,$=b[2]<0?za(g[0],g[1]):Ra(g,b,p,r);h.push(...Bi($,i,s,a,{within:n,side:p,from:b[0]<
0?null:u[b[0]],to:b[1]<0?null:u[b[1]],width:1.3+Math.log2(Math.max(1,b[4]))*.35,label:m.has(x)?"":w})),m.add(x)})}return l.bridges.forEach((p,d)=>{let m=Va(p,u,
c,r,d);h.push(...Bi(m,i,s,a,{within:n,side:"bridge",from:p[0]<0?null:u[p[0]],to:p[1]<0?null:u[p[1]],width:o(p[2]),label:`${p[2]}`}))}),h}function Bi(e,t,n,r,i){
let s=e.parts.flatMap(([,...d])=>d),[o,a]=[s.map(d=>d[0]+t),s.map(d=>d[1]+n)],[l,u]=[Math.min(...o),Math.min(...a)],c=e.parts.map(([d,...m])=>d+m.map(b=>`${zi(b[0]+
t)},${zi(b[1]+n)}`).join(" ")).join(""),h=([d,m])=>[d+t,m+n],p={...i,key:lr(i.within,i.side,i.from,i.to),d:c,at:e.at.map(h),ends:[h(s[0]),h(s[s.length-1])],box:[
l,u,Math.max(...o)-l,Math.max(...a)-u]};return r?Ui(p,e.parts.map(([d,...m])=>[d,...m.map(h)]),r):[p]}var zi=e=>Math.round(e*10)/10;function Da(e,t,n,r){let i=new Map,
s=e[t].map(()=>0);e[t].forEach((a,l)=>i.set(a[1],[...i.get(a[1])??[],l]));let o=a=>{let[l,,u]=e[t][a],c=t==="left"?-1:1;return u>=0?c*(1e4+u):l<0?c*ue:r.get(n[l]).
x};for(let[a,l]of i){if(l.length<2||a<0)continue;l.sort((c,h)=>o(c)-o(h));let u=Math.min(Ot*.6,l.length*16);l.forEach((c,h)=>s[c]=((h+.5)/l.length-.5)*u)}return s}
function Ba([e,t],n,r,i,s,o){let a=n==="left",l=a?-1:1,[u,c]=[Rt,s.height-Fi],h=d=>{let m=d===a?u:c;return{x:l*ue,y:m,clear:m}},p=(d,m)=>{if(d<0)return h(m);let b=i.
get(r[d]),v=m===a;return{x:b.x+(b.unit<0?l*ue:0)+(m?0:o),y:v?b.y+b.block.height:b.y,clear:v?s.bottoms[b.row]:s.tops[b.row]}};return[p(e,!0),p(t,!1)]}function za(e,t){
let n=Math.sign(t.clear-e.clear)||Math.sign(t.y-e.y)||1,r=Wi(e,t,n);if(Math.abs(e.x-t.x)<.5)return{parts:[["M",[e.x,e.y]],["L",[t.x,t.y]]],at:r};let i=Math.max(
10,Math.abs(t.clear-e.clear)/2)*n,s=["C",[e.x,e.clear+i],[t.x,t.clear-i],[t.x,t.clear]];return{parts:[["M",[e.x,e.y]],["L",[e.x,e.clear]],s,["L",[t.x,t.y]]],at:r}}
var Wi=(e,t,n)=>[[e.x,e.y+n*14],[t.x,t.y-n*17],[e.x,e.y+n*8]];function Ra([e,t],n,r,i){let s=n[2],o=r==="left"?-1:1,a=i.walls[r==="left"?0:1]+o*(s+1)*Vi,l=r==="\
left"?1:-1,u=5+s%4*2.5,[c,h]=[e.clear+l*u,t.clear-l*u],p=[[e.x,e.y],[e.x,c],[a,c],[a,h],[t.x,h],[t.x,t.y]];return{parts:Fa(p),at:Wi(e,t,l)}}function Fa(e){let t=[
["M",e[0]]];for(let n=1;n<e.length-1;n++){let[r,i,s]=[e[n-1],e[n],e[n+1]],o=Math.min(6,or(r,i)/2,or(i,s)/2);t.push(["L",Ri(i,r,o)],["Q",i,Ri(i,s,o)])}return t.push(
["L",e[e.length-1]]),t}var or=(e,t)=>Math.hypot(e[0]-t[0],e[1]-t[1]);function Ri(e,t,n){let r=or(e,t)||1;return[e[0]+(t[0]-e[0])*n/r,e[1]+(t[1]-e[1])*n/r]}function Va([
e,t],n,r,i,s){let[o,a]=[e,t].map(b=>b<0?void 0:r.get(n[b])),l=(b,v)=>b?b.y+b.block.height/2:v,[u,c]=[l(o,0),l(a,i.height)],h=(b,v,g,w)=>{if(!b)return{x:0,y:v,clear:v,
sideways:!1};if(b.unit>=0)return{x:b.x+w*Ot/2,y:v,clear:v,sideways:!0};let x=g>=v;return{x:b.x,y:x?b.y+b.block.height:b.y,clear:x?i.bottoms[b.row]:i.tops[b.row],
sideways:!1}},[p,d]=[h(o,u,c,1),h(a,c,u,-1)];if(o&&a&&o.unit<0&&a.unit<0&&o.row===a.row)return Wa(p,d);let m=p.sideways&&d.sideways?(s*4%9-4)*4:0;return Ha(p,d,
m)}var Se=15;function Wa(e,t){let n=Math.max(e.clear,t.clear)+Se+6;return{parts:[["M",[e.x,e.y]],["L",[e.x,e.clear]],["C",[e.x,n],[t.x,n],[t.x,t.clear]],["L",[t.
x,t.y]]],at:[[(e.x+t.x)/2,n]]}}function Ha(e,t,n){let r=Math.abs(t.y-e.y),i=Math.sign(t.y-e.y),s=[e.x,e.y],o=[t.x,t.y],a=[(e.x+t.x)/2,(e.y+t.y)/2];if(r<3||e.x===
t.x&&!e.sideways&&!t.sideways)return{parts:[["M",s],["L",o]],at:[a]};if(r<60&&(e.sideways||t.sideways)&&e.clear===e.y&&t.clear===t.y){let p=e.sideways?[a[0],e.y]:
[e.x,a[1]],d=t.sideways?[a[0],t.y]:[t.x,a[1]];return{parts:[["M",s],["C",p,d,o]],at:[a]}}let l=Math.min(24,r/2)*i,u=[["M",s]],[c,h]=[e.sideways?e.y+l:e.clear+i*
Se,t.sideways?t.y-l:t.clear-i*Se];return e.sideways?u.push(["C",[n,e.y],[n,e.y],[n,c]]):e.x===n?u.push(["L",[n,c]]):u.push(["L",[e.x,e.clear]],["C",[e.x,c],[e.x,
c],[(e.x+n)/2,c]],["C",[n,c],[n,c],[n,c+i*Math.min(Se,Math.abs(h-c)/2)]]),t.sideways?u.push(["L",[n,h]],["C",[n,t.y],[n,t.y],o]):t.x===n?u.push(["L",o]):u.push(
["L",[n,h-i*Math.min(Se,Math.abs(h-c)/2)]],["C",[n,h],[n,h],[(t.x+n)/2,h]],["C",[t.x,h],[t.x,h],[t.x,t.clear]],["L",o]),{parts:u,at:[.5,.35,.65,.2,.8].map(p=>[n,
c+(h-c)*p])}}var Xt={step:26,folded:38,title:38};function cr(e,t){let n=new Set,r=new Set;for(let{unit:i,around:s,kind:o,w:a,h:l,parts:u}of e.boxes){let c=o==="\
node"?t<=Xt.step:o==="folded"?t<=Xt.folded:t*1.25<=Math.max(l,...(u??[]).map(h=>h.h))&&t*4<=a;s!==null&&!(c&&n.has(s))||(n.add(i),o==="open"&&r.add(i),s!==null&&
r.delete(s))}return t>Xt.title&&qa(e,n,r),{units:n,whole:r,bare:r.has(V(0))?new Set:Ga(e,n)}}function Ga({boxes:e,columns:t},n){let r=new Set(t>1?Array.from({length:t},
(i,s)=>s):[]);for(let i of e)r.size&&i.around!==null&&n.has(i.unit)&&it(i).forEach((s,o)=>r.delete(i.column+o));return r}function qa({boxes:e},t,n){for(let r=e.
length-1;r>0;r--){let{unit:i,kind:s,level:o,w:a}=e[r],l=it(e[r]).reduce((h,p)=>h+p.h,0),u=[];if(s!=="open"||!t.has(i)||n.has(i))continue;for(let h=r+1;e[h]?.level>
o;h++)u.push(e[h]);let c=u.filter(h=>h.around===i&&t.has(h.unit));if(!(c.length>1?c.reduce((h,p)=>h+p.w*p.h,0)*3>a*l:c.length&&!n.has(c[0].unit))){for(let h of u)
t.delete(h.unit)&&n.delete(h.unit);n.add(i)}}}function Oe(e,{units:t,whole:n}){let r=V(e.within);return t.has(r)&&!n.has(r)&&(e.from===null||t.has(e.from))&&(e.
to===null||t.has(e.to))}var tn=96,en=class{cells=new Map;*near([t,n,r,i]){for(let s=Math.floor(t/tn);s<=Math.floor(r/tn);s++)for(let o=Math.floor(n/tn);o<=Math.
floor(i/tn);o++)yield`${s} ${o}`}add(t){for(let n of this.near(t)){let r=this.cells.get(n);r?r.push(t):this.cells.set(n,[t])}}has([t,n,r,i]){for(let s of this.near(
[t,n,r,i]))for(let o of this.cells.get(s)??[])if(o[0]<r&&t<o[2]&&o[1]<i&&n<o[3])return!0;return!1}};function Ka(e){let t=[];for(let[,n,r]of e.matchAll(/([MLQC])([^MLQC]*)/g)){
let i=r.split(/[ ,]/).map(Number),s=t[t.length-1];if(n==="M"||n==="L")t.push([i[0],i[1]]);else for(let o=1;o<=8;o++){let a=o/8,l=1-a,u=c=>n==="Q"?l*l*s[c]+2*l*a*
i[c]+a*a*i[2+c]:l**3*s[c]+3*l*l*a*i[c]+3*l*a*a*i[2+c]+a**3*i[4+c];t.push([u(0),u(1)])}}return t}function*Xa(e){let t=Ka(e.d),n=e.width/2+.5;for(let r=1;r<t.length;r++){
let[[i,s],[o,a]]=[t[r-1],t[r]],l=i===o||s===a,u=l?1:Math.ceil(Math.hypot(o-i,a-s)/8);for(let c=0;c<u;c++){let[h,p]=[c/u,(c+1)/u],d=[i+(o-i)*h,i+(o-i)*p],m=[s+(a-
s)*h,s+(a-s)*p];yield[Math.min(...d)-n,Math.min(...m)-n,Math.max(...d)+n,Math.max(...m)+n]}}}function*Ya(e,t,n){let{x:r,y:i,w:s,h:o,unit:a}=t,l=(a<0?e.marked.has(
-a-1):e.marks.has(a))?8:0;if(t.kind==="folded")yield[r-8,i-3-l,r+s+8,i+o+8];else if(t.kind==="open")for(let u of it(t)){(u.y===i||t.around===null)&&(yield[u.x,u.
y-3,u.x+u.w,u.y+Math.max(Rt,n*1.35)+2]);for(let c of[u.x,u.x+u.w])yield[c-1,u.y,c+1,u.y+u.h];yield[u.x,u.y+u.h-1,u.x+u.w,u.y+u.h+1]}else{let{left:u,right:c}=an(
e,t.unit),h=p=>p.length?Math.max(...p.map(d=>de(d.text)))+6:0;yield[r-h(u)-1,i-1-l,r+s+h(c)+4,i+o+1]}}var nn=class{constructor(t,n,r,i){this.size=r;this.textOf=
i;for(let s of n.boxes)for(let o of Ya(t,s,r))this.taken.add(o);for(let s of n.lines)for(let o of Xa(s))this.taken.add(o);this.labels=this.placed(n.lines.filter(
s=>s.side!=="bridge"),this.taken)}size;textOf;taken=new en;labels;of(t){return this.placed(t,new en)}placed(t,n){let{size:r,taken:i}=this,s=r*.62,o=[];for(let a of t){
let l=R(this.textOf(a),r,a.side==="bridge"),u=5+a.width/2;if(!l)continue;let c=({x:d,y:m})=>[d-2,m-s-2,d+l+2,m+3],p=a.at.flatMap(([d,m])=>[d+u,d-u-l].map(b=>({line:a,
x:b,y:m+s/2}))).find(d=>!i.has(c(d))&&!n.has(c(d)));p&&(n.add(c(p)),o.push(p))}return o}};var ja=28;function Hi(e,t=1/0){let n=new Set,r={open:n,turn:new Map},i=[0],[s,o]=[1,0],a=u=>e.frame(ce(e,r,u)).units.length,l=u=>e.frame(u).counts[0]+e.frame(u).
counts[1];for(;i.length;){i.sort((p,d)=>l(d)-l(p));let u=i.shift();if(u!==0&&(s+a(u)>ja||l(u)<o))break;n.add(e.alike[u]);let{left:c,right:h}=ln(e,r);if(u!==0&&(h-
c)*on>t){n.delete(e.alike[u]),o=Math.max(o,l(u)/2);continue}s+=a(u);for(let p of e.frame(ce(e,r,u)).units)p<0&&i.push(-p-1)}return r}function Gi(e,t,n){let r=new Set;
return e.data.frames.forEach((i,s)=>{e.depth[s]<n&&r.add(e.alike[s])}),{open:r,turn:t.turn}}function qi(e,t){let n=e.deepest+1;return e.data.frames.forEach((r,i)=>{
!e.isTurn(i)&&!Yt(e,t,i)&&(n=Math.min(n,e.depth[i]))}),n}function Ki(e,t,n){let r=new Set(t.open),i=e.alike[n];return r.delete(i)||r.add(i),{open:r,turn:t.turn}}
function Xi(e,t,n){let r=new Set(t.open),i=s=>{r.add(e.alike[s]);for(let o of e.frame(s).units)o<0&&i(-o-1)};return i(n),{open:r,turn:t.turn}}function Yi(e,t,n,r){
let i=e.frame(n).units.length-1;return{open:t.open,turn:new Map(t.turn).set(e.alike[n],Math.max(0,Math.min(i,r)))}}function un(e,t,n){let[r,i]=[new Set(t.open),
new Map(t.turn)],s=n;for(let o of e.above(n))e.frame(o).kind==="loop"&&i.set(e.alike[o],e.framePlace[-s-1]),r.add(e.alike[o]),s=V(o);return{open:r,turn:i}}function Ct(e,t,n){
let r=V(0);for(let i of[...e.above(n).reverse().map(V),n])t.byUnit.has(i)&&(r=i);return r}function fr(e,t,n){let r=[`pair=${e}`];t!==null&&r.push(t<0?`frame=${-t-
1}`:`step=${t}`),r.push(`open=${Za([...n.open])}`);let i=[...n.turn].filter(([,s])=>s).map(([s,o])=>`${s}:${o}`);return`#${[...r,...i.length?[`turn=${i.join(".")}`]:
[]].join("&")}`}function Za(e){let t=[];for(let n of e.sort((r,i)=>r-i)){let r=t.at(-1);r&&r[1]===n-1?r[1]=n:t.push([n,n])}return t.map(([n,r])=>n===r?`${n}`:`${n}\
-${r}`).join(".")}function ji(e,t){let n=new Map(e.replace(/^#/,"").split("&").map(u=>u.split("=",2))),r=(u,c)=>{let h=n.get(u),p=Number(h);return h&&/^\d+$/.test(
h)&&p<c?p:null},i=r("pair",t.length)??0,s=t[i],[o,a]=[r("step",s.count),r("frame",s.data.frames.length)],l=o??(a===null?null:V(a));return{pair:i,unit:l,opened:n.
has("open")?Qa(n.get("open"),n.get("turn")??""):null}}function Qa(e,t){let n=new Set,r=new Map;for(let[,i,s]of e.matchAll(/(\d{1,6})(?:-(\d{1,6}))?/g))for(let o=Number(
i);o<=Number(s??i);o++)n.add(o);for(let[,i,s]of t.matchAll(/(\d{1,6}):(\d{1,6})/g))r.set(Number(i),Number(s));return{open:n,turn:r}}function dr(e,t){let{nodes:n,saved:r}=e.data,i=e.isForward(t),s=i?e.pulled[t]:n.partners[t],o=[...new Set(n.inputs[t])],a=i?(e.savedFrom.get(t)??[]).map(([l,u])=>({
value:t,users:e.usersOf(l),bytes:u})):r.filter(([,l])=>o.includes(l)).map(([l,,u])=>({value:l,users:[t],bytes:u}));return{partners:s,inputs:o,users:e.usersOf(t),
saved:a}}function hr(e,t,n,r,i){let s=[],o=m=>{let b=Ct(e,t,m),v=e.above(b).filter(g=>t.byUnit.has(-g-1));return{shown:b,frames:v}},[a,l]=[o(n),o(r)],u=a.frames.
find(m=>l.frames.includes(m));if(u===void 0||a.shown===l.shown)return s;let c=(m,b,v)=>{let g=t.lineOf.get(lr(m,i,b,v));g&&s.push(g)},h=m=>m.frames.slice(0,m.frames.
indexOf(u)),p=a.shown;for(let m of h(a))[p]=[-m-1,c(m,p,null)];let d=l.shown;for(let m of h(l))[d]=[-m-1,c(m,null,d)];return c(u,p,d),s}function Zi(e,t,n){let r=new Map,
i=new Set,s=new Set,o=Ct(e,t,n),a=(c,h)=>{let p=Ct(e,t,c);s.add(c),p!==o&&!r.has(p)&&t.byUnit.get(p).kind!=="open"&&r.set(p,h)};if(r.set(o,"self"),n<0){for(let c of t.
lines)(c.from===n||c.to===n)&&i.add(c);return{units:r,lines:i,steps:s}}let l=dr(e,n),u=e.isForward(n)?"left":"right";l.partners.forEach(c=>a(c,"partner"));for(let{
value:c,users:h}of l.saved)for(let p of h){if(c<e.count){a(c,"saved");for(let d of hr(e,t,c,p,"bridge"))i.add(d)}a(p,"saved")}for(let c of l.inputs)if(!(c>=e.count)){
a(c,"input");for(let h of hr(e,t,c,n,u))i.add(h)}for(let c of l.users){a(c,"user");for(let h of hr(e,t,n,c,u))i.add(h)}return{units:r,lines:i,steps:s}}function wt({model:e,value:t,go:n}){return t<0||t>=e.count?f("span",{class:"port",title:e.specOf(t),children:f("bdi",{children:e.nameOf(t)})}):f("button",{class:`\
link ${e.isForward(t)?"forward":"backward"}`,title:e.call(t),onClick:()=>n(t),children:f("bdi",{children:e.nameOf(t)})})}function pe({model:e,values:t,go:n,most:r=8}){
return t.length?f("span",{class:"links",children:[t.slice(0,r).map(i=>f(wt,{model:e,value:i,go:n},i)),t.length>r&&f("span",{class:"soft",children:["and ",O(t.length-
r)," more"]})]}):f("span",{class:"soft",children:"none"})}var pr=30;function cn({share:e,side:t}){return f("svg",{class:`bar ${t}`,width:pr,height:"8","aria-hid\
den":"true",children:[f("rect",{width:pr,height:"8",rx:"2",class:"track"}),f("rect",{width:Math.max(e>0?1:0,pr*Math.min(1,e)),height:"8",rx:"2"})]})}var Ja=60,dt=class extends G{state={
sort:this.props.sort,most:Ja};sorted(){let[t,n]=this.state.sort,{value:r}=this.props.columns[t],i=new Map(this.props.rows.map(s=>[s,r(s)]));return[...this.props.
rows].sort((s,o)=>{let[a,l]=[i.get(s),i.get(o)];return n*(a<l?-1:a>l?1:0)})}render({columns:t,rows:n,empty:r}){if(!n.length)return f("p",{class:"soft",children:r});
let{sort:[i,s],most:o}=this.state,a=t.map(u=>typeof u.value(n[0])=="number"),l=(u,c)=>f("th",{class:a[c]?"r":"","aria-sort":i===c?s>0?"ascending":"descending":void 0,
children:f("button",{onClick:()=>this.setState({sort:[c,i===c?s>0?-1:1:a[c]?-1:1]}),children:u.name})},c);return f("div",{class:"table",children:[f("table",{children:[
f("thead",{children:f("tr",{children:t.map(l)})}),f("tbody",{children:this.sorted().slice(0,o).map((u,c)=>f("tr",{children:t.map((h,p)=>f("td",{class:a[p]?"r":"",
children:h.cell(u)}))},c))})]}),n.length>o&&f("button",{class:"more",onClick:()=>this.setState({most:o*5}),children:["show more: ",O(o)," of ",O(n.length)]})]})}};function Qi(e){let{selected:t}=e;return t===null?f(tl,{...e}):t<0?f(nl,{...e,id:-t-1}):f(rl,{...e,node:t})}function mr({rows:e}){return f("dl",{children:e.map(([
t,n])=>n!==""&&n!==null&&[f("dt",{children:t},t),f("dd",{children:n},`${t} `)])})}function tl({page:e,model:t}){let[n,r,,i,s]=t.frame(0).counts;return f("div",{
class:"panel",children:[f("h2",{children:f("bdi",{children:e.title})}),f(mr,{rows:[["Forward",`${J(n,"step")}${Me(i)}`],["Backward",r?`${J(r,"step")}${Me(s)}`:"\
this graph has no backward"],["Saved",el(t)],["Peak",t.timed?T(t.data.memory.peak[1]):""],["Changes",tr(t,0)],...e.facts.map(([o,a])=>[o,f("bdi",{children:a})])]}),
e.notes.map(o=>f("p",{class:"remark",children:f("bdi",{children:o})},o)),f("p",{class:"soft",children:"The forward runs down on the left, the backward up on the\
 right. Bands between them are saved tensors. Click a frame to open it, a step to see what belongs to it."})]})}function el(e){let{own:[t,n],rest:[r,i]}=e.savedSum(),
s=r?`. ${J(r,"more value")}, ${T(i)}, ${r===1?"is":"are"} the caller's, or ${r===1?"shares":"share"} memory with these`:"";return t||r?`${T(n)} in ${J(t,"value")}${s}`:
T(0)}function nl({model:e,opened:t,id:n,go:r,onFold:i,onOpenAll:s,onTurn:o}){let a=e.frame(n),[l,u,c,h,p]=a.counts,d=a.kind==="loop"?Ft(e,t,n):-1,m=a.kind==="lo\
op"?[]:[...e.inside(n)].filter(b=>e.data.nodes.flops[b]>0).sort((b,v)=>e.data.nodes.flops[v]-e.data.nodes.flops[b]).slice(0,6);return f("div",{class:"panel",children:[
f("h2",{children:f("bdi",{children:[e.path(n)||e.title(n),d>=0?` × ${a.units.length}`:""]})}),f("p",{class:"buttons",children:[f("button",{onClick:()=>i(n),children:Yt(
e,t,n)?"close":"open"}),f("button",{onClick:()=>s(n),children:"open all inside"})]}),d>=0&&f("p",{class:"turns",children:[f("button",{"aria-label":"previous tur\
n",disabled:d===0,onClick:()=>o(n,d-1),children:"‹"}),f("label",{children:["turn ",f("input",{type:"number",min:1,max:a.units.length,value:d+1,onChange:b=>o(n,
Number(b.currentTarget.value)-1)})," of ",O(a.units.length)]}),f("button",{"aria-label":"next turn",disabled:d===a.units.length-1,onClick:()=>o(n,d+1),children:"\
›"}),f("bdi",{class:"soft",children:e.path(-a.units[d]-1)})]}),f(mr,{rows:[["Kind",a.kind==="loop"?`loop of ${O(a.units.length)}`:a.kind],[a.kind==="module"||
a.kind==="loop"?"Class":"Code",a.label?f("bdi",{children:e.text(a.label)}):""],["Forward",`${J(l,"step")}${Me(h)}`],["Backward",`${J(u,"step")}${Me(p)}`],["Save\
d",T(c)],["Changes",tr(e,n)],["Largest products",m.length?f(pe,{model:e,values:m,go:r}):""],["Inside",a.parent>=0?f("button",{class:"link",onClick:()=>r(V(a.parent)),
children:f("bdi",{children:e.title(a.parent)})}):""]]})]})}function rl({page:e,model:t,node:n,go:r,jump:i}){let{nodes:s,sources:o}=t.data,a=dr(t,n),l=t.isForward(
n),u=o[s.source[n]],c=t.data.ports.filter(p=>!p.into&&p.role!=="saved"&&p.value===n),h=t.above(n).filter(p=>p>0).reverse();return f("div",{class:"panel",children:[
f("h2",{class:l?"forward":"backward",children:f("bdi",{children:t.nameOf(n)})}),f("p",{class:"soft",children:`${l?"Forward":"Backward"}, step ${O(n+1)} of ${O(t.
count)}`}),f("pre",{children:f("bdi",{children:t.call(n)})}),t.marks.has(n)&&f(er,{page:e,model:t,node:n,jump:i}),f(mr,{rows:[["Operator",`${t.text(s.op[n])} (${t.
kinds[n]})`],["Type",f("code",{children:t.text(s.spec[n])})],[l?"In the backward":"In the forward",f(pe,{model:t,values:a.partners,go:r})],["Echo",t.echoOf(n)],
["Inputs",f(pe,{model:t,values:a.inputs,go:r})],["Users",f(pe,{model:t,values:a.users,go:r})],["Leaves as",c.length?f("span",{class:"links",children:c.map(p=>f(
"span",{class:"port",title:t.text(p.spec),children:[p.role," ",f("bdi",{children:t.portName(p)})]}))}):""],["Saved",a.saved.length?a.saved.map(p=>f("div",{children:[
T(p.bytes)," ",l?"for ":"from ",l?f(pe,{model:t,values:p.users,go:r}):f(wt,{model:t,value:p.value,go:r})]},p.value)):""],["FLOPs",s.flops[n]?ke(s.flops[n]):""],
["Bytes",t.timed?`${T(s.read[n])} read, ${T(s.written[n])} written${t.isView(n)?", a view":s.memory[n]?`, ${T(s.memory[n])} new`:""}`:""],["Live",t.timed?T(t.data.
memory.live[n]):""],["Source",u?f("span",{children:[f("bdi",{children:t.lineOf(n)}),u[2]?f("span",{class:"soft",children:[" in ",f("bdi",{children:t.text(u[2])})]}):
"",f("code",{class:"source",children:f("bdi",{children:t.text(u[3])})})]}):""],["Module",u&&t.moduleOf(n)?f("bdi",{children:t.moduleOf(n)}):""],["Within",h.length?
f("span",{class:"links",children:h.map(p=>f("button",{class:"link",onClick:()=>r(V(p)),children:f("bdi",{children:t.title(p)})},p))}):""],...il(t,n)]})]})}function il(e,t){
let n=e.data.stats?.value.indexOf(t)??-1;if(n<0)return[];let[r,i,s,o,a,l,u,c,h]=e.data.stats.rows[n];return[["NaN and Inf",f("span",{class:u||c?"alarm":"",children:`${O(
u)} NaN, ${O(c)} Inf of ${O(r)}`})],["Values",`${Bt(i)} to ${Bt(s)}, mean ${Bt(o)}, deviation ${Bt(a)}, norm ${Bt(l)}, ${O(h)} zero`]]}var Ji=`/* The picture alone: also inside exported files. Okabe and Ito's colours, which colour-blind people tell apart. */
:root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #b04c00; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00765a; --save-soft: #cdebe1; --ink: #1c2127; --soft: #56606b; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa;
  --grey: #eef0f3; --found: #f5d000; --found-ink: #3a3200; --alarm: #c0182b; --alarm-ink: #ffffff; --mark: #8a2f9e; --near: #8a6d00; --near-soft: #fff1b8; }
@media (prefers-color-scheme: dark) { :root { --fwd: #6fbdec; --fwd-soft: #15293a; --fwd-line: #386a8c; --bwd: #f0a35e; --bwd-soft: #352415;
  --bwd-line: #8a5a2f; --save: #45cfa5; --save-soft: #14453a; --ink: #e7eaee; --soft: #a4afba; --line: #38414c; --paper: #14181d; --band: #1a1f26;
  --grey: #262c34; --found: #d7b600; --found-ink: #1c1900; --alarm: #ff6b78; --alarm-ink: #23060a; --mark: #dd9cec; --near: #e8c547; --near-soft: #453a10; } }
@media print { :root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #b04c00; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00765a; --save-soft: #cdebe1; --ink: #1c2127; --soft: #56606b; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa; --grey: #eef0f3; --mark: #8a2f9e; \
--near: #8a6d00; --near-soft: #fff1b8; } }
.picture { font: 11.5px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; background: var(--paper); }
.picture text { fill: var(--ink); unicode-bidi: isolate; user-select: none; }
.picture .soft { fill: var(--soft); }
.picture .paper { fill: var(--paper); }
.line path, path.band { fill: none; stroke-linecap: butt; }
.line.left path { stroke: var(--fwd-line); } .line.right path { stroke: var(--bwd-line); stroke-dasharray: 6 2.5; }
.line.bridge path { stroke: var(--save); opacity: .28; }
.line.left.bright path { stroke: var(--fwd); } .line.right.bright path { stroke: var(--bwd); } .line.bridge.bright path { opacity: .85; }
.picture .label { fill: var(--soft); } .picture .label.bridge { fill: var(--save); font-weight: 600; } .dots circle { fill: var(--save); stroke: var(--paper); s\
troke-width: 1; }
.tip.left path { fill: var(--fwd-line); } .tip.right path { fill: var(--bwd-line); }
.step > rect { stroke-width: 1.1; } .step.forward > rect { fill: var(--fwd-soft); stroke: var(--fwd); }
.step.backward > rect { fill: var(--bwd-soft); stroke: var(--bwd); }
.step.neighbor > rect { fill: var(--near-soft); stroke: var(--near); stroke-width: 2; }
.frame.open.region .body { stroke: var(--ink); stroke-dasharray: 7 4; stroke-width: 1.4; }
.step.view > rect, .step.guard > rect { fill: var(--grey); stroke: var(--line); } .picture .step.view > text { fill: var(--soft); }
.step .kept { fill: var(--save); stroke: var(--paper); stroke-width: 1; }
.step[role], .folded, .head, .turn { cursor: pointer; }
.picture .pill rect { fill: var(--paper); stroke: var(--line); stroke-width: 1; } .picture .pill text { text-anchor: middle; fill: var(--soft); }
.picture .pill.gradient rect { fill: var(--bwd); stroke: var(--bwd); } .picture .pill.gradient text { fill: var(--paper); font-weight: 600; }
.picture .pill.mutation rect { fill: var(--paper); stroke: var(--fwd); stroke-dasharray: 2 1.5; } .picture .pill.mutation text { fill: var(--fwd); }
.picture .pill.input rect, .picture .pill.tangent rect { stroke: var(--soft); } .picture .pill.input text, .picture .pill.tangent text { fill: var(--ink); }
.picture .pill.output rect { fill: var(--fwd); stroke: var(--fwd); } .picture .pill.output text { fill: var(--paper); font-weight: 600; }
.frame .body, .frame .hit, .half rect, .step > rect { vector-effect: non-scaling-stroke; }
.frame.open .body { fill: var(--paper); stroke: var(--line); stroke-width: 1.2; } .frame.open.odd .body { fill: var(--band); }
.tint { opacity: .35; } .whole .tint { opacity: .8; } .frame.open.whole .body { stroke: var(--soft); } .tint.forward { fill: var(--fwd-soft); } .tint.backward {\
 fill: var(--bwd-soft); }
.head rect, .column rect { fill: var(--grey); } .picture .column text { fill: var(--soft); } .head:hover rect { fill: var(--line); }
.picture .title { font-weight: 600; } .picture .sign { fill: var(--soft); font-weight: 400; }
.folded .hit { fill: var(--paper); stroke: var(--line); } .folded .hit.odd { fill: var(--band); } .folded .half rect { stroke-width: 1.3; }
.half.forward rect { fill: var(--fwd-soft); stroke: var(--fwd); } .half.backward rect { fill: var(--bwd-soft); stroke: var(--bwd); }
.folded .half.empty rect { fill: none; stroke: var(--line); stroke-dasharray: 3 3; } .folded .half rect.behind { fill: var(--paper); opacity: .7; }
.folded .band { stroke: var(--save); opacity: .6; fill: none; } .picture .size { fill: var(--save); text-anchor: middle; font-weight: 600; }
.folded.steps .half rect, .folded.line .half rect { stroke-width: 1; }
.stepper .plate { fill: var(--paper); stroke: var(--line); } .picture .stepper text { text-anchor: middle; font-weight: 600; }
.turn rect { fill: transparent; } .turn:hover rect { fill: var(--grey); } .turn.off { display: none; }
.picture .step.added > rect, .picture .step.changed > rect, .picture .step.removed > rect { stroke: var(--mark); stroke-width: 2.4; } .picture .step.removed > r\
ect { stroke-dasharray: 5 3; }
.changemark { pointer-events: none; } .picture .changemark rect { fill: var(--mark); stroke: var(--paper); stroke-width: 1; } .picture .changemark text { fill: \
var(--paper); font-weight: 700; text-anchor: middle; }
.badmark rect { fill: var(--alarm); stroke: none; } .picture .badmark text { fill: var(--alarm-ink); font-weight: 700; text-anchor: middle; }
.picture .step.bad > rect { stroke: var(--alarm); stroke-width: 2.4; }
.picture .step.match > rect { stroke: var(--found); stroke-width: 3; } .found rect { fill: var(--found); } .picture .found text { fill: var(--found-ink); font-w\
eight: 700; text-anchor: middle; }
.ring { fill: none; pointer-events: none; stroke-width: 2.5; stroke: var(--ink); }
.picture .is-self > rect:not(.hit), .picture .is-self > .half > rect:not(.behind) { stroke: var(--ink); stroke-width: 2.6; }
.picture .is-partner > rect:not(.hit), .picture .is-partner > .half > rect:not(.behind) { stroke-width: 2.6; }
.picture .is-partner.forward > rect { fill: var(--fwd-line); } .picture .is-partner.backward > rect { fill: var(--bwd-line); }
.picture .is-partner .soft, .picture .is-partner.view > text { fill: var(--ink); }
.picture .is-input > rect:not(.hit), .picture .is-user > rect:not(.hit) { stroke-width: 2; }
.picture .is-saved > rect:not(.hit), .picture .is-saved > .half > rect:not(.behind) { stroke: var(--save); stroke-width: 2.4; }
`;var ol=9.05;function yr(e){let t=ol/e;return{least:t,near:t<=he}}var pt=(e,{least:t})=>Math.max(e,t),es=({least:e})=>Math.max(1,e/he),st=.36;function al({line:e,
detail:t}){let n=e.side==="bridge"||e.goesOn||!t.near?void 0:`url(#tip-${e.side})`;return f("g",{class:`line ${e.side}`,"data-line":e.key,children:f("path",{d:e.
d,"stroke-width":e.width*es(t),"marker-end":n})})}function vr(e){return e.side==="bridge"?e.label==="0"?"":T(Number(e.label)):St(e.label,150,10)}function fn({least:e}){
return[10.5,12,he].find(t=>e<=t)??he}function wr({label:{line:e,x:t,y:n},size:r,bright:i}){return f("text",{class:`label ${e.side}${i?" bright":""}`,x:t,y:n,"fo\
nt-size":r,children:vr(e)})}function _r(e){let{box:t}=e;return t.kind==="node"?f(ll,{...e}):f(fl,{...e})}function ll({model:e,box:t,detail:n,marks:r,role:i}){let s=t.
unit,o=e.isForward(s)?"forward":"backward",a=e.bad.get(s),l=e.marks.get(s)?.kind,u=pt(e.isView(s)?10.5:11.5,n),c=Math.max(e.isView(s)?sn:ar,u+5),h=t.y+(t.h-c)/2,
p=h+c/2+u*st,d=["step",o,e.isView(s)&&"view",e.kinds[s]==="guard"&&"guard",e.isNeighbor(s)&&"neighbor",a&&"bad",l,i,r.steps?.has(s)&&"match"],m=e.shorts[s],b=e.
nameOf(s),v=m==="getitem"?b:ul(b,m),g=t.w-13,w=m==="getitem"?"":St(m,g,u),x=g-R(w,u),$=w===m||!w?St(v,x,u):"";return f("g",{class:d.filter(Boolean).join(" "),"d\
ata-unit":s,role:"button","aria-label":`${m} ${b}${l?`, ${l}`:""}`,children:[f("rect",{x:t.x,y:h,width:t.w,height:c,rx:e.isView(s)?3:5}),f("text",{x:t.x+7,y:p,"\
font-size":u,children:[w,$&&f("tspan",{class:"soft",children:$})]}),e.isSaved(s)&&f("circle",{class:"kept",cx:t.x+t.w,cy:t.y+t.h/2,r:3}),a&&f(rs,{x:t.x+t.w-26,bottom:h+
3,bad:a,detail:n}),l&&f(xr,{x:t.x,y:h,text:zt[l],detail:n}),n.near&&f(cl,{model:e,box:t,detail:n})]})}function ul(e,t){let n=t.replace(/^_+/,"");return e===t||e===
n?"":e.startsWith(n)?e.slice(n.length):` ${e}`}function ns({kind:e,x:t,bottom:n,text:r,detail:i}){let s=pt(9.5,i),o=R(r,s,!0)+s,a=s*1.4,l=n-a;return f("g",{class:e,
children:[f("rect",{x:t,y:l,width:o,height:a,rx:a/2}),f("text",{x:t+o/2,y:l+a/2+s*st,"font-size":s,children:r})]})}function rs({x:e,bottom:t,bad:n,detail:r}){return f(
ns,{kind:"badmark",text:n.nan?"NaN":"Inf",x:e,bottom:t,detail:r})}function xr({x:e,y:t,text:n,detail:r}){let i=pt(11,r),s=i*1.36,o=Math.max(s,R(n,i,!0)+i*.64),a=n.
length>1?0:-o/2;return f("g",{class:"changemark",transform:`translate(${e} ${Math.min(t,t+7-s/2)})`,children:[f("rect",{x:a,y:-s/2,width:o,height:s,rx:s/2}),f("\
text",{x:a+o/2,y:i*st,"font-size":i,children:n})]})}function gr(e){return vt.filter(t=>e[t]).map(t=>`${zt[t]}${e[t]}`).join(" ")}function cl({model:e,box:t,detail:n}){
let{left:r,right:i}=an(e,t.unit),s=t.y+t.h/2,o=(a,l)=>a.map((u,c)=>{let h=de(u.text),p=l<0?t.x-5-h:t.x+t.w+5,d=s+(c-a.length/2)*rn;return f(us,{...u,x:p,y:d,wide:h,
detail:n})});return f("g",{children:[o(r,-1),o(i,1)]})}function fl({model:e,box:t,detail:n,marks:r,role:i}){let s=-t.unit-1,o=e.frame(s),[a,l,u,c,h]=o.counts,[p,
d]=[t.mid-et,t.mid+et],m=t.y+t.h/2,b=ur(e)(u),{near:v}=n,g=o.kind==="loop",w=r.matches?.get(s),x=e.marked.get(s),$=pt(12.5,n),P=pt(10.5,n),C=u>0&&(v||a>0&&l>0),
S=u>0&&v&&R(T(u),P,!0)<=2*et-4,N=(Q,F,Z,H,K)=>{let y=H?J(H,"step"):"no step",k=K>0?ae(K):"",_=br(e,s,Z-18,$),M=R(`${y}   ${k}`,P)<=Z-20;return!H&&!v?null:f("g",
{class:`half ${Q}${H?"":" empty"}`,children:[g&&[6,3].map(E=>f("rect",{class:"behind",x:F+(Q==="forward"?-E:E),y:t.y+E,width:Z,height:t.h,rx:6})),f("rect",{x:F,
y:t.y,width:Z,height:t.h,rx:6}),(H||Q==="forward")&&f("text",{class:"title",x:F+10,y:v?t.y+20:m+$*st,"font-size":$,children:_}),v&&f("text",{class:"soft",x:F+10,
y:H||Q==="forward"?t.y+40:m+P*st,"font-size":P,children:y}),v&&k&&M&&f("text",{class:"soft",x:F+Z-10,y:t.y+40,"text-anchor":"end","font-size":P,children:k})]})};
return f("g",{class:`frame folded ${o.kind} ${i??""} ${w?"match":""}`,"data-unit":t.unit,role:"button","aria-expanded":"false","aria-label":kr(e,s),children:[f(
"rect",{class:t.level%2?"hit":"hit odd",x:t.x,y:t.y,width:t.w,height:t.h,rx:6}),N("forward",t.x,p-t.x,a,c),N("backward",d,t.x+t.w-d,l,h),C&&f("path",{class:"ban\
d",d:`M${p} ${m}H${d}`,"stroke-width":b}),S&&f("text",{class:"size",x:t.mid,y:m-b/2-4,"font-size":P,children:T(u)}),C&&f(is,{points:[[p,m],[d,m]],detail:n}),e.badFrames.
has(s)&&f(rs,{x:p-36,bottom:t.y+4,bad:{nan:1,inf:0},detail:n}),x&&f(xr,{x:d+8,y:t.y,text:gr(x),detail:n}),w&&f(ns,{kind:"found",x:t.x+4,bottom:t.y+6,text:String(
w),detail:n})]})}function is({points:e,detail:t}){return f("g",{class:"dots",children:e.map(([n,r])=>f("circle",{cx:n,cy:r,r:3*es(t)},`${n} ${r}`))})}function kr(e,t){
let n=e.frame(t),r=e.title(t),i=e.text(n.label),s=n.kind==="loop"?` × ${n.units.length}`:"";return`${r}${s}${i&&i!==r?`${n.kind==="line"?"  ":" · "}${i}`:""}`}
var hl=4;function br(e,t,n,r,i=!1){let s=e.frame(t),o=e.text(s.label),a=e.title(t),l=/^\d/.test(a),u=s.kind==="loop"?` × ${s.units.length}`:"",c=o===a?"":o||(l?
dl(e,t):""),h=s.kind==="line"&&c!=="",p=i&&l?e.path(s.parent):"",d=(p?`${p}.${a}`:a).split(/\.(?=[A-Za-z_])/),m=s.kind==="line"?[a]:d.map((C,S)=>(S?"…":"")+d.
slice(S).join(".")).concat(a),b=/\.\d[^.]*$/.test(a)?[...a].map((C,S)=>`…${a.slice(S+1)}`):[],v=s.kind==="line"?"  ":" · ",g=C=>R(C,r,!0)<=n,w=o&&c===o&&!h?St(
a+u+v+c,n,r,!0):"",x=w.length>(a+u+v).length+hl?[w]:[],$=[...c?m.map(C=>C+u+v+c):[],...x,...h?[]:[...m,...b].map(C=>C+u)],P=a.replace(/^.*:/,"line ");return St(
$.find(g)??(h?g(`${P}  code`)?`${P}  ${c}`:g(P)?P:a.replace(/^.*:/,":"):a+u),n,r,!0)}function dl(e,t){let{flops:n,read:r,written:i}=e.data.nodes,s=a=>r[a]+i[a];
if(e.frame(t).counts[0]>8)return"";let o=[...e.inside(t)].filter(a=>e.isForward(a)&&!e.isView(a)).sort((a,l)=>n[l]-n[a]||s(l)-s(a));return o.length?e.shorts[o[0]].
replace(/^_*(native_)?|_legit.*$/g,""):""}function ss(e,t,n){return R(kr(e,-t.unit-1).slice(0,6),n.least,!0)<os(e,t)-20}function os(e,{unit:t,x:n,w:r,mid:i}){return Math.
min(i-n,e.frame(-t-1).counts[1]>0?n+r-i:1/0)-et}function as(e,{least:t}){let n=it(e),r=Math.max(...n.map(i=>i.h));return n.map(i=>({...i,named:i.h===r||i.h>t*1.7})).
filter(i=>i.named||i.h>t*1.1)}function pl({box:e,kind:t,detail:n,whole:r,halved:i,back:s}){return f("g",{class:`frame open ${t} ${e.level%2?"odd":""}${r?" whole":
""}`,"data-unit":e.unit,children:(r?as(e,n):it(e)).map(({x:o,y:a,w:l,h:u,mid:c})=>[f("rect",{class:"body",x:o,y:a,width:l,height:u,rx:8}),i&&f("rect",{class:"ti\
nt forward",x:o,y:a,width:c-et-o,height:u,rx:8}),i&&s&&f("rect",{class:"tint backward",x:c+et,y:a,width:o+l-c-et,height:u,rx:8})])})}var ls=(e,t,n,r)=>[`… ${e}\
, column ${t} of ${n}`,`column ${t} of ${n}`,`${t} of ${n}`].find(r)??"";function ml({box:e,name:t,bare:n,detail:r}){let i=it(e),s=r.least,o=(a,l)=>a?ls(t,a+1,i.
length,u=>R(u,s)<=l):St(t,l,s);return f("g",{class:"column bare",children:[...n].map(a=>f("text",{x:i[a].x+s,y:i[a].y+s*2,"font-size":s,children:o(a,i[a].w-2*s)}))})}
function gl({box:e,name:t,detail:n}){let r=it(e),i=pt(12.5,n),s=Math.max(Rt,i*1.35);return f("g",{class:"column",children:r.slice(1).map(({x:o,y:a,w:l},u)=>[f("\
rect",{x:o+.6,y:a+.6,width:l-1.2,height:s,rx:8}),f("text",{x:o+10,y:a+s/2+i*st,"font-size":i,children:ls(t,u+2,r.length,c=>R(c,i)<=l-20)})])})}function bl({model:e,
opened:t,box:n,detail:r,whole:i}){let s=-n.unit-1,o=e.frame(s),a=e.marked.get(s),{near:l}=r,u=pt(10.5,r),c=i&&ss(e,n,r),h=c?os(e,n):n.w,p=pt(12.5,r),d=br(e,s,h-
18,p,i),m=i?Math.max(p,Math.min(n.h*.5,r.least*1.3,(h-20)/Math.max(1,R(d,1,!0)))):p,b=it(n).at(-1),v=o.kind==="loop",g=l&&o.counts[2]>0?`${T(o.counts[2])} saved`:
"",w=l?"− ":"",x=Math.max(Rt,m*1.35),$=i?n.x+h-4:v&&l?n.mid-70:n.x+n.w-10-(g?R(g,u)+14:0),P=v&&l?n.mid+70+(a?R(gr(a),11,!0)+34:0):n.x+R(w,m)+40,C=$-n.x-14-R(w,
m),S=i?d:m<=Xt.title?br(e,s,C,m):"";return f("g",{class:"frame","data-unit":n.unit,children:[f("g",{"data-fold":s,class:"head",role:"button","aria-expanded":"tr\
ue","aria-label":`close ${kr(e,s)}`,children:[(S||l)&&!i&&f("rect",{x:n.x+.6,y:n.y+.6,width:n.w-1.2,height:x,rx:8}),S&&!i&&f("text",{class:"title",x:n.x+10,y:n.
y+x/2+m*st,"font-size":m,"data-slack":C-R(S,m,!0),children:[w&&f("tspan",{class:"sign",children:w}),S]}),i&&as(n,r).map(N=>N.named?[f("text",{class:"title",x:N.
x+10,y:N.y+N.h/2+m*st,"font-size":m,children:S}),c&&o.counts[1]>0&&f("text",{class:"title",x:N.mid+et+10,y:N.y+N.h/2+m*st,"font-size":m,children:d})]:f("text",{
class:"title",x:N.x+10,y:N.y+N.h/2+r.least*.15,"font-size":r.least,children:"…"})),g&&!i&&P+R(g,u)<n.x+n.w-10&&f("text",{class:"soft",x:n.x+n.w-10,y:n.y+x/2+u*
st,"text-anchor":"end","font-size":u,children:g})]}),v&&l&&!i&&f(yl,{model:e,opened:t,id:s,detail:r,x:n.mid,y:n.y}),v&&a&&l&&f(xr,{x:n.mid+72,y:n.y+12,text:gr(a),
detail:r}),s===0&&l&&f(ts,{model:e,role:"input",middle:n.mid-ue,y:n.y-23,detail:r}),s===0&&l&&f(ts,{model:e,role:"tangent",middle:b.mid+ue,y:b.y+b.h+7,detail:r}),
s===0&&!i&&m<=Xt.title&&f(gl,{box:n,name:e.title(0),detail:r})]})}function ts({model:e,role:t,middle:n,y:r,detail:i}){let s=e.entering.filter(u=>u.role===t),a=s.
slice(0,s.length>3?2:3).map(u=>({text:e.portName(u),title:`${t} ${e.text(u.name)} ${e.text(u.spec)}`}));s.length>3&&a.push({text:`+${s.length-2}`,title:s.slice(
2).map(u=>e.text(u.name)).join(`
`)});let l=n-a.reduce((u,c)=>u+de(c.text)+4,-4)/2;return f("g",{children:a.map(u=>{let c=de(u.text),h=l;return l+=c+4,f(us,{...u,role:t,y:r,wide:c,detail:i,x:h})})})}
function us({x:e,y:t,wide:n,text:r,title:i,role:s,detail:o}){let a=pt(10,o),l=rn-2;return f("g",{class:`pill ${s}`,children:[f("title",{children:i}),f("rect",{x:e,
y:t+1,width:n,height:l,rx:l/2}),f("text",{x:e+n/2,y:t+1+l/2+a*st,"font-size":a,children:St(r,n-8,a,s==="gradient"||s==="output")})]})}function yl({model:e,opened:t,
id:n,x:r,y:i,detail:s}){let o=pt(11.5,s),a=Ft(e,t,n),{units:l}=e.frame(n),u=l[a],c=(h,p,d,m)=>f("g",{class:`turn${h<0||h>=l.length?" off":""}`,"data-loop":n,"da\
ta-turn":h,role:"button","aria-label":m,children:[f("rect",{x:p-11,y:i+3,width:22,height:18,rx:4}),f("text",{x:p,y:i+12+o*st,"font-size":o,children:d})]});return f(
"g",{class:"stepper",children:[f("title",{children:e.text(e.frame(-u-1).name)}),f("rect",{class:"plate",x:r-66,y:i+2,width:132,height:20,rx:5}),c(a-1,r-54,"‹",
"previous turn"),f("text",{x:r,y:i+12+o*st,"font-size":o,children:St(`${a+1} of ${l.length}`,84,o,!0)}),c(a+1,r+54,"›","next turn")]})}function cs({model:e,opened:t,
boxes:n,lines:r,detail:i,marks:s,shown:o,labels:a}){let l=[],u=new Map,c=fn(i);for(let h of n){if(!o.units.has(h.unit))continue;let p=o.whole.has(h.unit);if(h.kind!==
"open"){l.push(f(_r,{model:e,opened:t,box:h,detail:i,marks:s},`b${h.unit}`));continue}l.push(f(pl,{box:h,detail:i,kind:e.frame(-h.unit-1).kind,whole:p,halved:!p||
ss(e,h,i),back:!p||e.frame(-h.unit-1).counts[1]>0},`b${h.unit}`));let d=(r.get(-h.unit-1)??[]).filter(m=>Oe(m,o));for(let m of d)if(m.side==="bridge")for(let b of m.
ends)u.set(String(b),b);l.push(f("g",{class:"lines",children:[...d].sort((m,b)=>+(m.side!=="bridge")-+(b.side!=="bridge")).map(m=>f(al,{line:m,detail:i},m.d))},
`l${h.unit}`)),l.push(f(bl,{model:e,opened:t,box:h,detail:i,marks:s,whole:p},`h${h.unit}`)),h.around===null&&o.bare.size&&pt(12.5,i)>Xt.title&&l.push(f(ml,{box:h,
detail:i,name:e.title(0),bare:o.bare},"bare"))}return f("g",{children:[l,f(is,{points:[...u.values()],detail:i}),a.map(h=>f(wr,{label:h,size:c},h.line.key))]})}
function hn(){let e=t=>f("marker",{id:`tip-${t}`,class:`tip ${t}`,viewBox:"0 0 8 8",refX:"7",refY:"4",markerWidth:"7",markerHeight:"7",markerUnits:"userSpaceOnU\
se",orient:"auto",children:f("path",{d:"M0 .8L8 4L0 7.2Z"})});return f("defs",{children:[e("left"),e("right")]})}function fs(e,t){let{x:n,y:r,w:i,h:s,node:o}=e.visible(),a=document.createElementNS("http://www.w3.org/2000/svg","svg");oe([f("title",{children:t}),f("rect",{class:"\
paper",x:n,y:r,width:i,height:s}),f(hn,{}),o],a);let l={viewBox:`${n} ${r} ${i} ${s}`,width:String(Math.round(i)),height:String(Math.round(s)),class:"picture"};
for(let[c,h]of Object.entries(l))a.setAttribute(c,h);let u=new XMLSerializer().serializeToString(a).replace("</title>",`</title><style>${Ji}</style>`);return oe(
null,a),`<?xml version="1.0" encoding="UTF-8"?>
${u}
`}function hs(e,t){let n=URL.createObjectURL(new Blob([t],{type:"image/svg+xml"})),r=document.createElement("a");r.href=n,r.download=e,r.click(),setTimeout(()=>URL.
revokeObjectURL(n),1e3)}async function ds(e){try{return await navigator.clipboard.writeText(e),"The link is copied."}catch{return e}}var vl={"":1,b:1,k:1024,kib:1024,kb:1e3,m:1024**2,mib:1024**2,mb:1e6,g:1024**3,gib:1024**3,gb:1e9},wl=3,dn="any:",_l=["names","operators","shapes","source lines",
"modules","parameters"],ps=[["op:mm","steps whose operator is mm (op:mm* for those that begin with it)"],["kind:matmul","matmul, convolution, attention, norm, s\
oftmax, reduction, pointwise, embedding, copy, creation, view, guard"],["is:saved","steps whose value is saved for the backward; also is:view, is:guard"],["side\
:backward","steps of the backward; also side:forward"],[">1MiB","steps that write more than 1 MiB; also <4KiB"],["module:layers.3","steps of this module and of \
those inside it"],["line:model.py:12","steps of a source line, or of a whole file"],["shape:3,4","values with these sizes next to one another"],["any:relu","ste\
ps that have a word anywhere: in source lines, modules, parameters and shapes, too"],["has:nan","steps whose values were measured and have NaN; also has:inf"]];
function ms(e){return e.data.marks?[...ps,["is:changed","steps that changed; also is:added, is:removed"]]:ps}var pn=class{constructor(t){this.model=t;this.lower=
t.strings.map(n=>n.toLowerCase()),this.lines=t.data.sources.map(n=>`${this.lower[n[0]]}:${n[1]}`),this.paths=t.data.frames.map((n,r)=>t.path(r).toLowerCase()),this.
codes=t.data.sources.map(n=>`${this.lower[n[2]]} ${this.lower[n[3]]}`)}model;lower;lines;codes;paths;find(t){let n=[...t.toLowerCase().matchAll(/(any:)?"([^"]*)"|(\S+)/g)].
map(g=>g[3]??`${g[1]??""}${g[2]}`).filter(Boolean);if(!n.length)return null;let r=[],i=[],s=[],o=!1;for(let g of n){let w=g.startsWith(dn)&&g.length>dn.length?null:
this.filterOf(g);typeof w=="string"?s.push(w):w?r.push(w):(o||=g.startsWith(dn),i.push(g.replace(dn,"")))}let a=i.map(g=>this.placesOf(g)),l=[[],[],[]],u=[];if(!s.
length)for(let g=0;g<this.model.count;g++)!r.every(w=>w(g))||!a.every(w=>w[g])||(!a.length||a.every(w=>w[g]&wl)?l[a.length?this.rank(g,i[0]):0].push(g):u.push(g));
let c=s.length||r.length?[[],[]]:this.framesOf(i),h=l.flat(),p=o||!h.length,d=g=>this.countsOf(g,a[0]),m=p?[...h,...u]:h,b=p?[]:u,v=n.map(g=>i.includes(g)?/\s/.
test(g)?`any:"${g}"`:`any:${g}`:g).join(" ");return{...this.sum(c,m,s.join(" ")),counts:d(m),elsewhere:{steps:b.length,counts:d(b),query:v}}}countsOf(t,n){return n?
_l.map((r,i)=>[r,t.reduce((s,o)=>s+(n[o]>>i&1),0)]).filter(([,r])=>r):[]}sum([t,n],r,i){let{model:s}=this,o=new Map,a=0,l=new Int32Array(s.data.frames.length);for(let u of r)
s.isForward(u)&&a++,l[s.data.nodes.frame[u]]++;return l.forEach((u,c)=>{if(u)for(let h=c;h>=0;h=s.frame(h).parent)o.set(h,(o.get(h)??0)+u)}),{units:[...t,...r,...n],
steps:new Set(r),within:o,forward:a,problem:i}}rank(t,n){let{model:r}=this,i=[r.shorts[t].toLowerCase(),this.lower[r.data.nodes.name[t]]];return i.includes(n)?0:
i.some(s=>s.startsWith(n))?1:2}framesOf(t){let{model:n}=this,r=[[],[]],i=new Set;return n.data.frames.forEach((s,o)=>{let a=this.lower[s.name],l=`${this.paths[o]}\
 ${this.lower[s.label]}`;o===0||i.has(n.alike[o])||!t.every(u=>l.includes(u))||t.some(u=>a.includes(u)||this.lower[s.label].includes(u)||u.includes("."))&&(i.add(
n.alike[o]),r[a.startsWith(t[0])||this.paths[o]===t[0]?0:1].push(V(o)))}),r}placesOf(t){let{model:n}=this,{nodes:r,sources:i}=n.data,s=Uint8Array.from(this.lower,
u=>Number(u.includes(t))),o=Uint8Array.from(i,(u,c)=>(this.lines[c].includes(t)||this.codes[c].includes(t)?8:0)|(s[u[4]]?16:0)),a=Uint8Array.from(n.entering,u=>s[u.
name]?32:0),l=new Uint8Array(n.count);for(let u=0;u<n.count;u++){let c=s[r.name[u]]|s[r.op[u]]<<1|s[r.spec[u]]<<2;r.source[u]>=0&&(c|=o[r.source[u]]);for(let h of r.
inputs[u])h>=n.count&&(c|=a[h-n.count]);l[u]=c}return l}filterOf(t){let n=/^([<>])=?([\d.]+)([a-z]*)$/.exec(t);if(n){let s=vl[n[3]];if(s===void 0)return`“${t}\
”: the unit is B, KiB, MiB or GiB.`;let o=Number(n[2])*s,{written:a}=this.model.data.nodes;return n[1]===">"?l=>a[l]>o:l=>a[l]<o}let[,r,i]=/^(op|kind|is|side|module|line|shape|has):(.*)$/.
exec(t)??[];return r?i?this.keyed(r,i):`“${t}” needs something behind the colon.`:null}keyed(t,n){let{model:r}=this,{nodes:i,sources:s}=r.data,o=l=>`“${t}\
:${n}”: ${t} is one of ${l.join(", ")}.`;return{op:()=>{let l=n.endsWith("*")?n.slice(0,-1):null,u=r.strings.map((c,h)=>this.lower[h]);return c=>{let[h,p]=[r.
shorts[c].toLowerCase(),u[i.op[c]]];return l===null?h===n||p===n||p.endsWith(`.${n}`)||p.startsWith(`${n}.`):h.startsWith(l)||p.startsWith(l)}},kind:()=>{let l=[
...new Set(r.kinds)].sort();return l.includes(n)?u=>r.kinds[u]===n:o(l)},is:()=>{let l={saved:u=>r.isSaved(u),view:u=>r.isView(u),guard:u=>r.kinds[u]==="guard"};
if(r.data.marks)for(let u of vt)l[u]=c=>r.marks.get(c)?.kind===u;return Object.hasOwn(l,n)?l[n]:o(Object.keys(l))},side:()=>n==="forward"||n==="backward"?l=>r.isForward(
l)===(n==="forward"):o(["forward","backward"]),module:()=>{let l=h=>h===n||h.startsWith(`${n}.`)||h.includes(`.${n}.`)||h.endsWith(`.${n}`),u=r.strings.map((h,p)=>l(
this.lower[p])),c=this.paths.map(l);return h=>c[i.frame[h]]||i.source[h]>=0&&u[s[i.source[h]][4]]},line:()=>{let l=this.lines.map(u=>u===n||u.endsWith(`/${n}`)||
u.startsWith(`${n}:`)||u.includes(`/${n}:`));return u=>i.source[u]>=0&&l[i.source[u]]},shape:()=>{let l=`,${n.replace(/[^\w,*]/g,"")},`,u=r.strings.map(c=>/\[/.
test(c)&&`,${c.slice(c.indexOf("[")+1,c.lastIndexOf("]")).replace(/\s/g,"")},`.includes(l));return c=>u[i.spec[c]]},has:()=>r.data.stats?n==="nan"||n==="inf"?l=>(r.
bad.get(l)?.[n]??0)>0:o(["nan","inf"]):"This capture has no statistics of values, so has: finds nothing."}[t]()}};var mn=50,gn=class extends G{state={open:!1};input=ct();componentDidMount(){this.props.mounted(this)}focus(){this.input.current.focus(),this.input.current.select()}pressed=t=>{
let{found:n,at:r,onGo:i,onLeave:s}=this.props,o=n?.units.length??0;if(t.stopPropagation(),t.key==="Escape")t.preventDefault(),this.setState({open:!1}),s();else if(o&&
(t.key==="Enter"||t.key==="ArrowDown"||t.key==="ArrowUp")){t.preventDefault();let a=t.key==="ArrowUp"||t.shiftKey;this.setState({open:t.key!=="Enter"}),i(r<0?a?
o-1:0:(r+(a?o-1:1))%o)}};render({query:t,found:n,model:r,at:i,onQuery:s,onGo:o}){return f("div",{class:"finder",role:"search",onFocusOut:a=>{a.currentTarget.contains(
a.relatedTarget)||this.setState({open:!1})},children:[f("input",{ref:this.input,type:"search",value:t,placeholder:"search: name, operator, shape, line   /","ari\
a-label":"search",spellcheck:!1,onInput:a=>{s(a.currentTarget.value),this.setState({open:!0})},onFocus:()=>this.setState({open:!0}),onKeyDown:this.pressed}),n&&
f("output",{class:"total",children:n.problem?"?":O(n.units.length)}),this.state.open&&f("div",{class:"results",tabIndex:-1,children:n?f(kl,{found:n,model:r,at:i,
onGo:o,onQuery:a=>{s(a),this.focus()}}):f(xl,{model:r,onQuery:a=>{s(a),this.focus()}})})]})}};function xl({model:e,onQuery:t}){return f("div",{class:"help",children:[
f("p",{class:"soft",children:"Words are looked for in names and operators; where none has them, in shapes, source lines, modules and parameters, too. Filters ca\
n be put beside them:"}),f("dl",{children:ms(e).map(([n,r])=>[f("dt",{children:f("button",{class:"link",onClick:()=>t(n),children:n})},n),f("dd",{children:r},`${n}\
 `)])})]})}var gs=e=>e.map(([t,n])=>`${t} ${O(n)}`).join(", ");function kl({found:e,model:t,at:n,onGo:r,onQuery:i}){if(e.problem)return f("p",{class:"alarm",children:e.
problem});let s=e.steps.size-e.forward,o=e.units.length-e.steps.size,a=Math.max(0,Math.min(n-20,e.units.length-mn));return f("div",{children:[f("p",{class:"soft\
 counts",children:[[e.forward&&`${O(e.forward)} forward`,s&&`${O(s)} backward`,o&&J(o,"frame")].filter(Boolean).join(", ")||"Nothing has these words.",e.counts.
length>0&&` · in ${gs(e.counts)}`]}),e.elsewhere.steps>0&&f("p",{children:f("button",{class:"link elsewhere",onClick:()=>i(e.elsewhere.query),children:`${J(e.elsewhere.
steps,"more step")}, not by name: in ${gs(e.elsewhere.counts)}`})}),f("ul",{children:e.units.slice(a,a+mn).map((l,u)=>f(Ml,{model:t,unit:l,chosen:a+u===n,onGo:()=>r(
a+u)},l))}),e.units.length>mn&&f("p",{class:"soft",children:`${O(a+1)} to ${O(Math.min(e.units.length,a+mn))} of ${O(e.units.length)}; Enter goes on`})]})}function Ml({
model:e,unit:t,chosen:n,onGo:r}){let i=s=>{s.preventDefault(),r()};if(t<0){let s=-t-1;return f("li",{class:n?"chosen":"",onMouseDown:i,children:[f("b",{children:f(
"bdi",{children:e.path(s)})}),f("span",{class:"soft",children:f("bdi",{children:e.text(e.frame(s).label)})})]})}return f("li",{class:n?"chosen":"",onMouseDown:i,
children:[f("b",{class:e.isForward(t)?"forward":"backward",children:f("bdi",{children:e.nameOf(t)})}),f("code",{children:e.specOf(t)}),f("span",{class:"soft",children:f(
"bdi",{children:[e.moduleOf(t),e.lineOf(t)].filter(Boolean).join("  ")})})]})}var bs=[["/","search; Enter goes to the first, then to the next; Shift+Enter back; Escape leaves"],["↓ ↑","along the flow, as it is drawn: the forward runs \
down, the backward up"],["← →","to the partner in the other direction"],["Enter","open or close the selected frame, or the one around the selected step"],["\
Shift+Enter","open everything inside the selected frame"],["[ ]","previous or next turn of the loop around the selection"],["n p","next or previous match of the\
 search"],["1 – 9","open every frame to that depth; 0 closes all but the first"],["+ − f a","zoom in, zoom out, fit, fit all"],["m c l o i d","memory, code,\
 lines, operators, inputs and outputs, details"],["Escape","select nothing"],["wheel","move; with Ctrl or ⌘, zoom. Drag moves, too. On the time line: ← → move t\
he moment"]];function vs(e){let t=[["n p","next or previous match of the search; without a search, next or previous change"],["h","changes"]];return e?bs.flatMap(
n=>n[0]==="n p"?t:[n]):bs}function Mr(e,t,n,r){if(n===null)return ws(t);let i=n<0||e.isForward(n),s=Ct(e,t,n),o=l=>l<e.count?Ct(e,t,l):s,a=i===(r===1);for(let l of $l(
e,n,a)){let u=o(l),c=t.byUnit.get(u);if(u!==s&&c&&c.kind!=="open"&&!e.above(s).includes(-u-1))return u}return Sl(e,t,s,r,i)}function $l(e,t,n){let r=t>=0?[t]:[...e.
inside(-t-1)].filter(o=>e.isForward(o)),i=new Set(r);return r.flatMap(o=>n?e.usersOf(o):e.data.nodes.inputs[o]).filter(o=>o<e.count&&!i.has(o)).sort((o,a)=>n?o-
a:a-o)}function Sl(e,t,n,r,i){let s=t.byUnit.get(n);if(!s)return ws(t);let[o,a]=[n,1/0];for(let l of t.boxes){let u=(ys(l)-ys(s))*r;if(l.kind==="open"||u<=0||l.
kind==="node"&&e.isForward(l.unit)!==i)continue;let c=u+Math.abs(l.mid-s.mid)/20;c<a&&([o,a]=[l.unit,c])}return o}var ys=e=>e.y+(e.column??0)*1e6;function ws(e){
return e.boxes.find(t=>t.kind!=="open")?.unit??null}function $r(e,t,n){return t===null||t<0||e.isForward(t)!==n?t:(n?e.pulled[t]:e.data.nodes.partners[t])[0]??t}var jt=64,mt=16,_s=11,bn=class extends G{state={wide:0};frame=ct();watcher=new ResizeObserver(()=>this.setState({wide:this.frame.current.clientWidth}));shape=null;componentDidMount(){
this.watcher.observe(this.frame.current),this.setState({wide:this.frame.current.clientWidth})}componentWillUnmount(){this.watcher.disconnect()}shouldComponentUpdate(t,n){
let{model:r,moment:i,selected:s}=this.props;return t.model!==r||t.moment!==i||t.selected!==s||n.wide!==this.state.wide}get step(){return this.state.wide/Math.max(
1,this.props.model.count)}paths(){let{model:t}=this.props,{wide:n}=this.state;if(this.shape?.model===t&&this.shape.wide===n)return this.shape.paths;let{live:r}=t.
data.memory,i=Math.max(1,xs(r)),s=Math.max(1,Math.floor(1/this.step/1.5)),o=(l,u)=>{if(l>=u)return"";let c=`M${(l*this.step).toFixed(1)} ${mt+jt}`;for(let h=l;h<
u;h+=s){let p=Math.min(u,h+s),d=mt+jt*(1-xs(r,h,p)/i);c+=`L${(h*this.step).toFixed(1)} ${d.toFixed(1)}L${(p*this.step).toFixed(1)} ${d.toFixed(1)}`}return`${c}L${(u*
this.step).toFixed(1)} ${mt+jt}Z`},a=[o(0,t.data.forward),o(t.data.forward,t.count)];return this.shape={model:t,wide:n,paths:a},a}chosen=t=>{let n=Math.floor((t.
clientX-this.frame.current.getBoundingClientRect().left)/this.step);this.props.onMoment(Math.max(0,Math.min(this.props.model.count-1,n)))};pressed=t=>{let{model:n,
moment:r,onMoment:i}=this.props,s={ArrowRight:1,ArrowLeft:-1,PageDown:10,PageUp:-10}[t.key],o=r??n.data.memory.peak[0],a=t.key==="Home"?0:t.key==="End"?n.count-
1:s===void 0?null:o+s*(t.shiftKey?10:1);a!==null&&(t.preventDefault(),t.stopPropagation(),i(Math.max(0,Math.min(n.count-1,a))))};render({model:t,moment:n,selected:r}){
let{wide:i}=this.state,{memory:s,forward:o}=t.data,[a,l]=s.peak,[u,c]=i&&t.count?this.paths():["",""],h=w=>(w+.5)*this.step,p=[`peak ${T(l)} + ${T(s.before)} he\
ld by the caller`,`peak ${T(l)}`],d=p.find(w=>R(w,_s)<i-24)??"",m=R(d,_s),b=h(a)+8,v=b+m<i-6?b:Math.max(4,Math.min(h(a)-8-m,i-m-6)),g=n===null?"":`, ${T(s.live[n])}\
 at step ${O(n+1)}`;return f("div",{class:"timeline",ref:this.frame,tabIndex:0,role:"slider","aria-label":"live bytes over forward and backward","aria-valuemin":0,
"aria-valuemax":Math.max(0,t.count-1),"aria-valuenow":n??Math.max(0,a),"aria-valuetext":`peak ${T(l)}${g}`,onClick:this.chosen,onMouseMove:w=>w.buttons===1&&this.
chosen(w),onKeyDown:this.pressed,children:f("svg",{width:i,height:mt+jt+1,children:[f("path",{class:"area forward",d:u}),f("path",{class:"area backward",d:c}),o>
0&&o<t.count&&f("path",{class:"border",d:`M${o*this.step} ${mt}V${mt+jt}`}),a>=0&&t.count>0&&f("circle",{class:"peak",cx:h(a),cy:mt,r:3.5}),a>=0&&t.count>0&&f("\
text",{class:"peak",x:v,y:11,children:d}),r!==null&&r>=0&&f("path",{class:"cursor selected",d:`M${h(r)} ${mt-4}V${mt+jt}`}),n!==null&&f("path",{class:"cursor",d:`\
M${h(n)} ${mt-4}V${mt+jt}`})]})})}};function xs(e,t=0,n=e.length){let r=0;for(let i=t;i<n;i++)e[i]>r&&(r=e[i]);return r}function El(e,t){return e.data.memory.spans.
filter(([,n,r])=>n<=t&&t<=r).sort((n,r)=>r[3]-n[3])}function ks({model:e,moment:t,go:n,onMoment:r}){let{memory:i}=e.data,[s,o]=i.peak,a=t??s;if(a<0||!e.count)return f(
"div",{class:"panel",children:[f("h2",{children:"Memory"}),f("p",{class:"soft",children:"There is no step, so nothing is live."})]});let l=El(e,a),u=l.reduce((h,p)=>h+
p[3],0),c=[{name:"value",value:h=>e.nameOf(h[0]),cell:h=>f(wt,{model:e,value:h[0],go:n})},{name:"bytes",value:h=>h[3],cell:h=>T(h[3])},{name:"as",value:h=>e.text(
h[4]),cell:h=>e.text(h[4])},{name:"steps",value:h=>h[2]-h[1]+1,cell:h=>`${O(h[1]+1)}–${h[2]<e.count?O(h[2]+1):"end"}`}];return f("div",{class:"panel",children:[
f("h2",{children:"Memory"}),f("dl",{children:[f("dt",{children:"Step"}),f("dd",{children:[`${O(a+1)} of ${O(e.count)}: `,f(wt,{model:e,value:a,go:n})]}),f("dt",
{children:"Live"}),f("dd",{children:[`${T(i.live[a])} in ${O(l.length)} values`,Math.abs(u-i.live[a])>.5&&f("span",{class:"soft",children:` (${T(u)} listed belo\
w)`})]}),f("dt",{children:"Peak"}),f("dd",{children:[`${T(o)} at `,f("button",{class:"link",onClick:()=>r(s),children:`step ${O(s+1)}`})]}),f("dt",{children:"Be\
fore"}),f("dd",{children:`${T(i.before)} of parameters, buffers and inputs, held by the caller`})]}),f(dt,{columns:c,rows:l,sort:[1,-1],empty:"Nothing is held a\
t this step."},a),f("h3",{children:"Held by the caller throughout"}),f(dt,{columns:c.slice(0,3),rows:i.held,sort:[1,-1],empty:"Nothing."})]})}var Sr="http://www.w3.org/1999/xhtml",Ms={svg:"http://www.w3.org/2000/svg",xhtml:Sr,xlink:"http://www.w3.org/1999/xlink",xml:"http://www.w3.org/XML/1998/namespa\
ce",xmlns:"http://www.w3.org/2000/xmlns/"};function Ce(e){var t=e+="",n=t.indexOf(":");return n>=0&&(t=e.slice(0,n))!=="xmlns"&&(e=e.slice(n+1)),Ms.hasOwnProperty(
t)?{space:Ms[t],local:e}:e}function Ol(e){return function(){var t=this.ownerDocument,n=this.namespaceURI;return n===Sr&&t.documentElement.namespaceURI===Sr?t.createElement(
e):t.createElementNS(n,e)}}function Cl(e){return function(){return this.ownerDocument.createElementNS(e.space,e.local)}}function $s(e){var t=Ce(e);return(t.local?
Cl:Ol)(t)}function Pl(){}function vn(e){return e==null?Pl:function(){return this.querySelector(e)}}function Nl(e){typeof e!="function"&&(e=vn(e));for(var t=this.
_groups,n=t.length,r=new Array(n),i=0;i<n;++i)for(var s=t[i],o=s.length,a=r[i]=new Array(o),l,u,c=0;c<o;++c)(l=s[c])&&(u=e.call(l,l.__data__,c,s))&&("__data__"in
l&&(u.__data__=l.__data__),a[c]=u);return new ot(r,this._parents)}function Al(e){return e==null?[]:Array.isArray(e)?e:Array.from(e)}function Ll(){return[]}function Or(e){
return e==null?Ll:function(){return this.querySelectorAll(e)}}function Tl(e){return function(){return Al(e.apply(this,arguments))}}function Il(e){typeof e=="fun\
ction"?e=Tl(e):e=Or(e);for(var t=this._groups,n=t.length,r=[],i=[],s=0;s<n;++s)for(var o=t[s],a=o.length,l,u=0;u<a;++u)(l=o[u])&&(r.push(e.call(l,l.__data__,u,o)),
i.push(l));return new ot(r,i)}function Cr(e){return function(){return this.matches(e)}}function Ss(e){return function(t){return t.matches(e)}}var Ul=Array.prototype.
find;function Dl(e){return function(){return Ul.call(this.children,e)}}function Bl(){return this.firstElementChild}function zl(e){return this.select(e==null?Bl:
Dl(typeof e=="function"?e:Ss(e)))}var Rl=Array.prototype.filter;function Fl(){return Array.from(this.children)}function Vl(e){return function(){return Rl.call(this.
children,e)}}function Wl(e){return this.selectAll(e==null?Fl:Vl(typeof e=="function"?e:Ss(e)))}function Hl(e){typeof e!="function"&&(e=Cr(e));for(var t=this._groups,
n=t.length,r=new Array(n),i=0;i<n;++i)for(var s=t[i],o=s.length,a=r[i]=[],l,u=0;u<o;++u)(l=s[u])&&e.call(l,l.__data__,u,s)&&a.push(l);return new ot(r,this._parents)}
function Es(e){return new Array(e.length)}function Gl(){return new ot(this._enter||this._groups.map(Es),this._parents)}function yn(e,t){this.ownerDocument=e.ownerDocument,
this.namespaceURI=e.namespaceURI,this._next=null,this._parent=e,this.__data__=t}yn.prototype={constructor:yn,appendChild:function(e){return this._parent.insertBefore(
e,this._next)},insertBefore:function(e,t){return this._parent.insertBefore(e,t)},querySelector:function(e){return this._parent.querySelector(e)},querySelectorAll:function(e){
return this._parent.querySelectorAll(e)}};function ql(e){return function(){return e}}function Kl(e,t,n,r,i,s){for(var o=0,a,l=t.length,u=s.length;o<u;++o)(a=t[o])?
(a.__data__=s[o],r[o]=a):n[o]=new yn(e,s[o]);for(;o<l;++o)(a=t[o])&&(i[o]=a)}function Xl(e,t,n,r,i,s,o){var a,l,u=new Map,c=t.length,h=s.length,p=new Array(c),d;
for(a=0;a<c;++a)(l=t[a])&&(p[a]=d=o.call(l,l.__data__,a,t)+"",u.has(d)?i[a]=l:u.set(d,l));for(a=0;a<h;++a)d=o.call(e,s[a],a,s)+"",(l=u.get(d))?(r[a]=l,l.__data__=
s[a],u.delete(d)):n[a]=new yn(e,s[a]);for(a=0;a<c;++a)(l=t[a])&&u.get(p[a])===l&&(i[a]=l)}function Yl(e){return e.__data__}function jl(e,t){if(!arguments.length)
return Array.from(this,Yl);var n=t?Xl:Kl,r=this._parents,i=this._groups;typeof e!="function"&&(e=ql(e));for(var s=i.length,o=new Array(s),a=new Array(s),l=new Array(
s),u=0;u<s;++u){var c=r[u],h=i[u],p=h.length,d=Zl(e.call(c,c&&c.__data__,u,r)),m=d.length,b=a[u]=new Array(m),v=o[u]=new Array(m),g=l[u]=new Array(p);n(c,h,b,v,
g,d,t);for(var w=0,x=0,$,P;w<m;++w)if($=b[w]){for(w>=x&&(x=w+1);!(P=v[x])&&++x<m;);$._next=P||null}}return o=new ot(o,r),o._enter=a,o._exit=l,o}function Zl(e){return typeof e==
"object"&&"length"in e?e:Array.from(e)}function Ql(){return new ot(this._exit||this._groups.map(Es),this._parents)}function Jl(e,t,n){var r=this.enter(),i=this,
s=this.exit();return typeof e=="function"?(r=e(r),r&&(r=r.selection())):r=r.append(e+""),t!=null&&(i=t(i),i&&(i=i.selection())),n==null?s.remove():n(s),r&&i?r.merge(
i).order():i}function tu(e){for(var t=e.selection?e.selection():e,n=this._groups,r=t._groups,i=n.length,s=r.length,o=Math.min(i,s),a=new Array(i),l=0;l<o;++l)for(var u=n[l],
c=r[l],h=u.length,p=a[l]=new Array(h),d,m=0;m<h;++m)(d=u[m]||c[m])&&(p[m]=d);for(;l<i;++l)a[l]=n[l];return new ot(a,this._parents)}function eu(){for(var e=this.
_groups,t=-1,n=e.length;++t<n;)for(var r=e[t],i=r.length-1,s=r[i],o;--i>=0;)(o=r[i])&&(s&&o.compareDocumentPosition(s)^4&&s.parentNode.insertBefore(o,s),s=o);return this}
function nu(e){e||(e=ru);function t(h,p){return h&&p?e(h.__data__,p.__data__):!h-!p}for(var n=this._groups,r=n.length,i=new Array(r),s=0;s<r;++s){for(var o=n[s],
a=o.length,l=i[s]=new Array(a),u,c=0;c<a;++c)(u=o[c])&&(l[c]=u);l.sort(t)}return new ot(i,this._parents).order()}function ru(e,t){return e<t?-1:e>t?1:e>=t?0:NaN}
function iu(){var e=arguments[0];return arguments[0]=this,e.apply(null,arguments),this}function su(){return Array.from(this)}function ou(){for(var e=this._groups,
t=0,n=e.length;t<n;++t)for(var r=e[t],i=0,s=r.length;i<s;++i){var o=r[i];if(o)return o}return null}function au(){let e=0;for(let t of this)++e;return e}function lu(){
return!this.node()}function uu(e){for(var t=this._groups,n=0,r=t.length;n<r;++n)for(var i=t[n],s=0,o=i.length,a;s<o;++s)(a=i[s])&&e.call(a,a.__data__,s,i);return this}
function cu(e){return function(){this.removeAttribute(e)}}function fu(e){return function(){this.removeAttributeNS(e.space,e.local)}}function hu(e,t){return function(){
this.setAttribute(e,t)}}function du(e,t){return function(){this.setAttributeNS(e.space,e.local,t)}}function pu(e,t){return function(){var n=t.apply(this,arguments);
n==null?this.removeAttribute(e):this.setAttribute(e,n)}}function mu(e,t){return function(){var n=t.apply(this,arguments);n==null?this.removeAttributeNS(e.space,
e.local):this.setAttributeNS(e.space,e.local,n)}}function gu(e,t){var n=Ce(e);if(arguments.length<2){var r=this.node();return n.local?r.getAttributeNS(n.space,n.
local):r.getAttribute(n)}return this.each((t==null?n.local?fu:cu:typeof t=="function"?n.local?mu:pu:n.local?du:hu)(n,t))}function Os(e){return e.ownerDocument&&
e.ownerDocument.defaultView||e.document&&e||e.defaultView}function bu(e){return function(){this.style.removeProperty(e)}}function yu(e,t,n){return function(){this.
style.setProperty(e,t,n)}}function vu(e,t,n){return function(){var r=t.apply(this,arguments);r==null?this.style.removeProperty(e):this.style.setProperty(e,r,n)}}
function wu(e,t,n){return arguments.length>1?this.each((t==null?bu:typeof t=="function"?vu:yu)(e,t,n??"")):Zt(this.node(),e)}function Zt(e,t){return e.style.getPropertyValue(
t)||Os(e).getComputedStyle(e,null).getPropertyValue(t)}function _u(e){return function(){delete this[e]}}function xu(e,t){return function(){this[e]=t}}function ku(e,t){
return function(){var n=t.apply(this,arguments);n==null?delete this[e]:this[e]=n}}function Mu(e,t){return arguments.length>1?this.each((t==null?_u:typeof t=="fu\
nction"?ku:xu)(e,t)):this.node()[e]}function Cs(e){return e.trim().split(/^|\s+/)}function Pr(e){return e.classList||new Ps(e)}function Ps(e){this._node=e,this.
_names=Cs(e.getAttribute("class")||"")}Ps.prototype={add:function(e){var t=this._names.indexOf(e);t<0&&(this._names.push(e),this._node.setAttribute("class",this.
_names.join(" ")))},remove:function(e){var t=this._names.indexOf(e);t>=0&&(this._names.splice(t,1),this._node.setAttribute("class",this._names.join(" ")))},contains:function(e){
return this._names.indexOf(e)>=0}};function Ns(e,t){for(var n=Pr(e),r=-1,i=t.length;++r<i;)n.add(t[r])}function As(e,t){for(var n=Pr(e),r=-1,i=t.length;++r<i;)n.
remove(t[r])}function $u(e){return function(){Ns(this,e)}}function Su(e){return function(){As(this,e)}}function Eu(e,t){return function(){(t.apply(this,arguments)?
Ns:As)(this,e)}}function Ou(e,t){var n=Cs(e+"");if(arguments.length<2){for(var r=Pr(this.node()),i=-1,s=n.length;++i<s;)if(!r.contains(n[i]))return!1;return!0}return this.
each((typeof t=="function"?Eu:t?$u:Su)(n,t))}function Cu(){this.textContent=""}function Pu(e){return function(){this.textContent=e}}function Nu(e){return function(){
var t=e.apply(this,arguments);this.textContent=t??""}}function Au(e){return arguments.length?this.each(e==null?Cu:(typeof e=="function"?Nu:Pu)(e)):this.node().textContent}
function Lu(){this.innerHTML=""}function Tu(e){return function(){this.innerHTML=e}}function Iu(e){return function(){var t=e.apply(this,arguments);this.innerHTML=
t??""}}function Uu(e){return arguments.length?this.each(e==null?Lu:(typeof e=="function"?Iu:Tu)(e)):this.node().innerHTML}function Du(){this.nextSibling&&this.parentNode.
appendChild(this)}function Bu(){return this.each(Du)}function zu(){this.previousSibling&&this.parentNode.insertBefore(this,this.parentNode.firstChild)}function Ru(){
return this.each(zu)}function Fu(e){var t=typeof e=="function"?e:$s(e);return this.select(function(){return this.appendChild(t.apply(this,arguments))})}function Vu(){
return null}function Wu(e,t){var n=typeof e=="function"?e:$s(e),r=t==null?Vu:typeof t=="function"?t:vn(t);return this.select(function(){return this.insertBefore(
n.apply(this,arguments),r.apply(this,arguments)||null)})}function Hu(){var e=this.parentNode;e&&e.removeChild(this)}function Gu(){return this.each(Hu)}function qu(){
var e=this.cloneNode(!1),t=this.parentNode;return t?t.insertBefore(e,this.nextSibling):e}function Ku(){var e=this.cloneNode(!0),t=this.parentNode;return t?t.insertBefore(
e,this.nextSibling):e}function Xu(e){return this.select(e?Ku:qu)}function Yu(e){return arguments.length?this.property("__data__",e):this.node().__data__}function ju(e){
return function(t){e.call(this,t,this.__data__)}}function Zu(e){return e.trim().split(/^|\s+/).map(function(t){var n="",r=t.indexOf(".");return r>=0&&(n=t.slice(
r+1),t=t.slice(0,r)),{type:t,name:n}})}function Qu(e){return function(){var t=this.__on;if(t){for(var n=0,r=-1,i=t.length,s;n<i;++n)s=t[n],(!e.type||s.type===e.
type)&&s.name===e.name?this.removeEventListener(s.type,s.listener,s.options):t[++r]=s;++r?t.length=r:delete this.__on}}}function Ju(e,t,n){return function(){var r=this.
__on,i,s=ju(t);if(r){for(var o=0,a=r.length;o<a;++o)if((i=r[o]).type===e.type&&i.name===e.name){this.removeEventListener(i.type,i.listener,i.options),this.addEventListener(
i.type,i.listener=s,i.options=n),i.value=t;return}}this.addEventListener(e.type,s,n),i={type:e.type,name:e.name,value:t,listener:s,options:n},r?r.push(i):this.__on=
[i]}}function tc(e,t,n){var r=Zu(e+""),i,s=r.length,o;if(arguments.length<2){var a=this.node().__on;if(a){for(var l=0,u=a.length,c;l<u;++l)for(i=0,c=a[l];i<s;++i)
if((o=r[i]).type===c.type&&o.name===c.name)return c.value}return}for(a=t?Ju:Qu,i=0;i<s;++i)this.each(a(r[i],t,n));return this}function Ls(e,t,n){var r=Os(e),i=r.
CustomEvent;typeof i=="function"?i=new i(t,n):(i=r.document.createEvent("Event"),n?(i.initEvent(t,n.bubbles,n.cancelable),i.detail=n.detail):i.initEvent(t,!1,!1)),
e.dispatchEvent(i)}function ec(e,t){return function(){return Ls(this,e,t)}}function nc(e,t){return function(){return Ls(this,e,t.apply(this,arguments))}}function rc(e,t){
return this.each((typeof t=="function"?nc:ec)(e,t))}function*ic(){for(var e=this._groups,t=0,n=e.length;t<n;++t)for(var r=e[t],i=0,s=r.length,o;i<s;++i)(o=r[i])&&
(yield o)}var Ts=[null];function ot(e,t){this._groups=e,this._parents=t}function Qt(){return new ot([[document.documentElement]],Ts)}function sc(){return this}ot.
prototype=Qt.prototype={constructor:ot,select:Nl,selectAll:Il,selectChild:zl,selectChildren:Wl,filter:Hl,data:jl,enter:Gl,exit:Ql,join:Jl,merge:tu,selection:sc,
order:eu,sort:nu,call:iu,nodes:su,node:ou,size:au,empty:lu,each:uu,attr:gu,style:wu,property:Mu,classed:Ou,text:Au,html:Uu,raise:Bu,lower:Ru,append:Fu,insert:Wu,
remove:Gu,clone:Xu,datum:Yu,on:tc,dispatch:rc,[Symbol.iterator]:ic};function j(e){return typeof e=="string"?new ot([[document.querySelector(e)]],[document.documentElement]):
new ot([[e]],Ts)}var oc=0;function ac(){return new Er}function Er(){this._="@"+(++oc).toString(36)}Er.prototype=ac.prototype={constructor:Er,get:function(e){for(var t=this._;!(t in
e);)if(!(e=e.parentNode))return;return e[t]},set:function(e,t){return e[this._]=t},remove:function(e){return this._ in e&&delete e[this._]},toString:function(){
return this._}};function lc(e){let t;for(;t=e.sourceEvent;)e=t;return e}function Pt(e,t){if(e=lc(e),t===void 0&&(t=e.currentTarget),t){var n=t.ownerSVGElement||
t;if(n.createSVGPoint){var r=n.createSVGPoint();return r.x=e.clientX,r.y=e.clientY,r=r.matrixTransform(t.getScreenCTM().inverse()),[r.x,r.y]}if(t.getBoundingClientRect){
var i=t.getBoundingClientRect();return[e.clientX-i.left-t.clientLeft,e.clientY-i.top-t.clientTop]}}return[e.pageX,e.pageY]}var uc={value:()=>{}};function Pe(){for(var e=0,t=arguments.length,n={},r;e<t;++e){if(!(r=arguments[e]+"")||r in n||/[\s.]/.test(r))throw new Error("illegal typ\
e: "+r);n[r]=[]}return new wn(n)}function wn(e){this._=e}function cc(e,t){return e.trim().split(/^|\s+/).map(function(n){var r="",i=n.indexOf(".");if(i>=0&&(r=n.
slice(i+1),n=n.slice(0,i)),n&&!t.hasOwnProperty(n))throw new Error("unknown type: "+n);return{type:n,name:r}})}wn.prototype=Pe.prototype={constructor:wn,on:function(e,t){
var n=this._,r=cc(e+"",n),i,s=-1,o=r.length;if(arguments.length<2){for(;++s<o;)if((i=(e=r[s]).type)&&(i=fc(n[i],e.name)))return i;return}if(t!=null&&typeof t!="\
function")throw new Error("invalid callback: "+t);for(;++s<o;)if(i=(e=r[s]).type)n[i]=Is(n[i],e.name,t);else if(t==null)for(i in n)n[i]=Is(n[i],e.name,null);return this},
copy:function(){var e={},t=this._;for(var n in t)e[n]=t[n].slice();return new wn(e)},call:function(e,t){if((i=arguments.length-2)>0)for(var n=new Array(i),r=0,i,
s;r<i;++r)n[r]=arguments[r+2];if(!this._.hasOwnProperty(e))throw new Error("unknown type: "+e);for(s=this._[e],r=0,i=s.length;r<i;++r)s[r].value.apply(t,n)},apply:function(e,t,n){
if(!this._.hasOwnProperty(e))throw new Error("unknown type: "+e);for(var r=this._[e],i=0,s=r.length;i<s;++i)r[i].value.apply(t,n)}};function fc(e,t){for(var n=0,
r=e.length,i;n<r;++n)if((i=e[n]).name===t)return i.value}function Is(e,t,n){for(var r=0,i=e.length;r<i;++r)if(e[r].name===t){e[r]=uc,e=e.slice(0,r).concat(e.slice(
r+1));break}return n!=null&&e.push({name:t,value:n}),e}var Nr={capture:!0,passive:!1};function Ar(e){e.preventDefault(),e.stopImmediatePropagation()}function Us(e){var t=e.document.documentElement,n=j(e).on("dragstart.drag",Ar,Nr);"onselectstart"in
t?n.on("selectstart.drag",Ar,Nr):(t.__noselect=t.style.MozUserSelect,t.style.MozUserSelect="none")}function Ds(e,t){var n=e.document.documentElement,r=j(e).on("\
dragstart.drag",null);t&&(r.on("click.drag",Ar,Nr),setTimeout(function(){r.on("click.drag",null)},0)),"onselectstart"in n?r.on("selectstart.drag",null):(n.style.
MozUserSelect=n.__noselect,delete n.__noselect)}function hc(e,{sourceEvent:t,subject:n,target:r,identifier:i,active:s,x:o,y:a,dx:l,dy:u,dispatch:c}){Object.defineProperties(this,{type:{value:e,enumerable:!0,configurable:!0},
sourceEvent:{value:t,enumerable:!0,configurable:!0},subject:{value:n,enumerable:!0,configurable:!0},target:{value:r,enumerable:!0,configurable:!0},identifier:{value:i,
enumerable:!0,configurable:!0},active:{value:s,enumerable:!0,configurable:!0},x:{value:o,enumerable:!0,configurable:!0},y:{value:a,enumerable:!0,configurable:!0},
dx:{value:l,enumerable:!0,configurable:!0},dy:{value:u,enumerable:!0,configurable:!0},_:{value:c}})}hc.prototype.on=function(){var e=this._.on.apply(this._,arguments);
return e===this._?this:e};function ye(e,t,n){e.prototype=t.prototype=n,n.constructor=e}function Le(e,t){var n=Object.create(e.prototype);for(var r in t)n[r]=t[r];return n}function Vt(){}
var ne=.7,be=1/ne,me="\\s*([+-]?\\d+)\\s*",Ne="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)\\s*",_t="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)%\\s*",dc=/^#([0-9a-f]{3,8})$/,
pc=new RegExp(`^rgb\\(${me},${me},${me}\\)$`),mc=new RegExp(`^rgb\\(${_t},${_t},${_t}\\)$`),gc=new RegExp(`^rgba\\(${me},${me},${me},${Ne}\\)$`),bc=new RegExp(`\
^rgba\\(${_t},${_t},${_t},${Ne}\\)$`),yc=new RegExp(`^hsl\\(${Ne},${_t},${_t}\\)$`),vc=new RegExp(`^hsla\\(${Ne},${_t},${_t},${Ne}\\)$`),Bs={aliceblue:15792383,
antiquewhite:16444375,aqua:65535,aquamarine:8388564,azure:15794175,beige:16119260,bisque:16770244,black:0,blanchedalmond:16772045,blue:255,blueviolet:9055202,brown:10824234,
burlywood:14596231,cadetblue:6266528,chartreuse:8388352,chocolate:13789470,coral:16744272,cornflowerblue:6591981,cornsilk:16775388,crimson:14423100,cyan:65535,darkblue:139,
darkcyan:35723,darkgoldenrod:12092939,darkgray:11119017,darkgreen:25600,darkgrey:11119017,darkkhaki:12433259,darkmagenta:9109643,darkolivegreen:5597999,darkorange:16747520,
darkorchid:10040012,darkred:9109504,darksalmon:15308410,darkseagreen:9419919,darkslateblue:4734347,darkslategray:3100495,darkslategrey:3100495,darkturquoise:52945,
darkviolet:9699539,deeppink:16716947,deepskyblue:49151,dimgray:6908265,dimgrey:6908265,dodgerblue:2003199,firebrick:11674146,floralwhite:16775920,forestgreen:2263842,
fuchsia:16711935,gainsboro:14474460,ghostwhite:16316671,gold:16766720,goldenrod:14329120,gray:8421504,green:32768,greenyellow:11403055,grey:8421504,honeydew:15794160,
hotpink:16738740,indianred:13458524,indigo:4915330,ivory:16777200,khaki:15787660,lavender:15132410,lavenderblush:16773365,lawngreen:8190976,lemonchiffon:16775885,
lightblue:11393254,lightcoral:15761536,lightcyan:14745599,lightgoldenrodyellow:16448210,lightgray:13882323,lightgreen:9498256,lightgrey:13882323,lightpink:16758465,
lightsalmon:16752762,lightseagreen:2142890,lightskyblue:8900346,lightslategray:7833753,lightslategrey:7833753,lightsteelblue:11584734,lightyellow:16777184,lime:65280,
limegreen:3329330,linen:16445670,magenta:16711935,maroon:8388608,mediumaquamarine:6737322,mediumblue:205,mediumorchid:12211667,mediumpurple:9662683,mediumseagreen:3978097,
mediumslateblue:8087790,mediumspringgreen:64154,mediumturquoise:4772300,mediumvioletred:13047173,midnightblue:1644912,mintcream:16121850,mistyrose:16770273,moccasin:16770229,
navajowhite:16768685,navy:128,oldlace:16643558,olive:8421376,olivedrab:7048739,orange:16753920,orangered:16729344,orchid:14315734,palegoldenrod:15657130,palegreen:10025880,
paleturquoise:11529966,palevioletred:14381203,papayawhip:16773077,peachpuff:16767673,peru:13468991,pink:16761035,plum:14524637,powderblue:11591910,purple:8388736,
rebeccapurple:6697881,red:16711680,rosybrown:12357519,royalblue:4286945,saddlebrown:9127187,salmon:16416882,sandybrown:16032864,seagreen:3050327,seashell:16774638,
sienna:10506797,silver:12632256,skyblue:8900331,slateblue:6970061,slategray:7372944,slategrey:7372944,snow:16775930,springgreen:65407,steelblue:4620980,tan:13808780,
teal:32896,thistle:14204888,tomato:16737095,turquoise:4251856,violet:15631086,wheat:16113331,white:16777215,whitesmoke:16119285,yellow:16776960,yellowgreen:10145074};
ye(Vt,re,{copy(e){return Object.assign(new this.constructor,this,e)},displayable(){return this.rgb().displayable()},hex:zs,formatHex:zs,formatHex8:wc,formatHsl:_c,
formatRgb:Rs,toString:Rs});function zs(){return this.rgb().formatHex()}function wc(){return this.rgb().formatHex8()}function _c(){return Ys(this).formatHsl()}function Rs(){
return this.rgb().formatRgb()}function re(e){var t,n;return e=(e+"").trim().toLowerCase(),(t=dc.exec(e))?(n=t[1].length,t=parseInt(t[1],16),n===6?Fs(t):n===3?new q(
t>>8&15|t>>4&240,t>>4&15|t&240,(t&15)<<4|t&15,1):n===8?_n(t>>24&255,t>>16&255,t>>8&255,(t&255)/255):n===4?_n(t>>12&15|t>>8&240,t>>8&15|t>>4&240,t>>4&15|t&240,((t&
15)<<4|t&15)/255):null):(t=pc.exec(e))?new q(t[1],t[2],t[3],1):(t=mc.exec(e))?new q(t[1]*255/100,t[2]*255/100,t[3]*255/100,1):(t=gc.exec(e))?_n(t[1],t[2],t[3],t[4]):
(t=bc.exec(e))?_n(t[1]*255/100,t[2]*255/100,t[3]*255/100,t[4]):(t=yc.exec(e))?Hs(t[1],t[2]/100,t[3]/100,1):(t=vc.exec(e))?Hs(t[1],t[2]/100,t[3]/100,t[4]):Bs.hasOwnProperty(
e)?Fs(Bs[e]):e==="transparent"?new q(NaN,NaN,NaN,0):null}function Fs(e){return new q(e>>16&255,e>>8&255,e&255,1)}function _n(e,t,n,r){return r<=0&&(e=t=n=NaN),new q(
e,t,n,r)}function Br(e){return e instanceof Vt||(e=re(e)),e?(e=e.rgb(),new q(e.r,e.g,e.b,e.opacity)):new q}function Te(e,t,n,r){return arguments.length===1?Br(e):
new q(e,t,n,r??1)}function q(e,t,n,r){this.r=+e,this.g=+t,this.b=+n,this.opacity=+r}ye(q,Te,Le(Vt,{brighter(e){return e=e==null?be:Math.pow(be,e),new q(this.r*e,
this.g*e,this.b*e,this.opacity)},darker(e){return e=e==null?ne:Math.pow(ne,e),new q(this.r*e,this.g*e,this.b*e,this.opacity)},rgb(){return this},clamp(){return new q(
te(this.r),te(this.g),te(this.b),kn(this.opacity))},displayable(){return-.5<=this.r&&this.r<255.5&&-.5<=this.g&&this.g<255.5&&-.5<=this.b&&this.b<255.5&&0<=this.
opacity&&this.opacity<=1},hex:Vs,formatHex:Vs,formatHex8:xc,formatRgb:Ws,toString:Ws}));function Vs(){return`#${Jt(this.r)}${Jt(this.g)}${Jt(this.b)}`}function xc(){
return`#${Jt(this.r)}${Jt(this.g)}${Jt(this.b)}${Jt((isNaN(this.opacity)?1:this.opacity)*255)}`}function Ws(){let e=kn(this.opacity);return`${e===1?"rgb(":"rgba\
("}${te(this.r)}, ${te(this.g)}, ${te(this.b)}${e===1?")":`, ${e})`}`}function kn(e){return isNaN(e)?1:Math.max(0,Math.min(1,e))}function te(e){return Math.max(
0,Math.min(255,Math.round(e)||0))}function Jt(e){return e=te(e),(e<16?"0":"")+e.toString(16)}function Hs(e,t,n,r){return r<=0?e=t=n=NaN:n<=0||n>=1?e=t=NaN:t<=0&&
(e=NaN),new gt(e,t,n,r)}function Ys(e){if(e instanceof gt)return new gt(e.h,e.s,e.l,e.opacity);if(e instanceof Vt||(e=re(e)),!e)return new gt;if(e instanceof gt)
return e;e=e.rgb();var t=e.r/255,n=e.g/255,r=e.b/255,i=Math.min(t,n,r),s=Math.max(t,n,r),o=NaN,a=s-i,l=(s+i)/2;return a?(t===s?o=(n-r)/a+(n<r)*6:n===s?o=(r-t)/a+
2:o=(t-n)/a+4,a/=l<.5?s+i:2-s-i,o*=60):a=l>0&&l<1?0:o,new gt(o,a,l,e.opacity)}function $n(e,t,n,r){return arguments.length===1?Ys(e):new gt(e,t,n,r??1)}function gt(e,t,n,r){
this.h=+e,this.s=+t,this.l=+n,this.opacity=+r}ye(gt,$n,Le(Vt,{brighter(e){return e=e==null?be:Math.pow(be,e),new gt(this.h,this.s,this.l*e,this.opacity)},darker(e){
return e=e==null?ne:Math.pow(ne,e),new gt(this.h,this.s,this.l*e,this.opacity)},rgb(){var e=this.h%360+(this.h<0)*360,t=isNaN(e)||isNaN(this.s)?0:this.s,n=this.
l,r=n+(n<.5?n:1-n)*t,i=2*n-r;return new q(Lr(e>=240?e-240:e+120,i,r),Lr(e,i,r),Lr(e<120?e+240:e-120,i,r),this.opacity)},clamp(){return new gt(Gs(this.h),xn(this.
s),xn(this.l),kn(this.opacity))},displayable(){return(0<=this.s&&this.s<=1||isNaN(this.s))&&0<=this.l&&this.l<=1&&0<=this.opacity&&this.opacity<=1},formatHsl(){
let e=kn(this.opacity);return`${e===1?"hsl(":"hsla("}${Gs(this.h)}, ${xn(this.s)*100}%, ${xn(this.l)*100}%${e===1?")":`, ${e})`}`}}));function Gs(e){return e=(e||
0)%360,e<0?e+360:e}function xn(e){return Math.max(0,Math.min(1,e||0))}function Lr(e,t,n){return(e<60?t+(n-t)*e/60:e<180?n:e<240?t+(n-t)*(240-e)/60:t)*255}var js=Math.
PI/180,Zs=180/Math.PI,Mn=18,Qs=.96422,Js=1,to=.82521,eo=4/29,ge=6/29,no=3*ge*ge,kc=ge*ge*ge;function ro(e){if(e instanceof xt)return new xt(e.l,e.a,e.b,e.opacity);
if(e instanceof Nt)return so(e);e instanceof q||(e=Br(e));var t=Dr(e.r),n=Dr(e.g),r=Dr(e.b),i=Tr((.2225045*t+.7168786*n+.0606169*r)/Js),s,o;return t===n&&n===r?
s=o=i:(s=Tr((.4360747*t+.3850649*n+.1430804*r)/Qs),o=Tr((.0139322*t+.0971045*n+.7141733*r)/to)),new xt(116*i-16,500*(s-i),200*(i-o),e.opacity)}function io(e,t,n,r){return arguments.length===1?ro(e):new xt(e,t,n,r??1)}function xt(e,t,n,r){this.l=+e,this.a=+t,this.b=+n,this.opacity=+r}ye(xt,io,Le(Vt,{brighter(e){
return new xt(this.l+Mn*(e??1),this.a,this.b,this.opacity)},darker(e){return new xt(this.l-Mn*(e??1),this.a,this.b,this.opacity)},rgb(){var e=(this.l+16)/116,t=isNaN(
this.a)?e:e+this.a/500,n=isNaN(this.b)?e:e-this.b/200;return t=Qs*Ir(t),e=Js*Ir(e),n=to*Ir(n),new q(Ur(3.1338561*t-1.6168667*e-.4906146*n),Ur(-.9787684*t+1.9161415*
e+.033454*n),Ur(.0719453*t-.2289914*e+1.4052427*n),this.opacity)}}));function Tr(e){return e>kc?Math.pow(e,1/3):e/no+eo}function Ir(e){return e>ge?e*e*e:no*(e-eo)}
function Ur(e){return 255*(e<=.0031308?12.92*e:1.055*Math.pow(e,1/2.4)-.055)}function Dr(e){return(e/=255)<=.04045?e/12.92:Math.pow((e+.055)/1.055,2.4)}function Mc(e){
if(e instanceof Nt)return new Nt(e.h,e.c,e.l,e.opacity);if(e instanceof xt||(e=ro(e)),e.a===0&&e.b===0)return new Nt(NaN,0<e.l&&e.l<100?0:NaN,e.l,e.opacity);var t=Math.
atan2(e.b,e.a)*Zs;return new Nt(t<0?t+360:t,Math.sqrt(e.a*e.a+e.b*e.b),e.l,e.opacity)}function Sn(e,t,n,r){return arguments.length===1?Mc(e):new Nt(e,t,n,r??1)}function Nt(e,t,n,r){this.h=+e,this.c=+t,this.l=+n,this.opacity=+r}function so(e){if(isNaN(
e.h))return new xt(e.l,0,0,e.opacity);var t=e.h*js;return new xt(e.l,Math.cos(t)*e.c,Math.sin(t)*e.c,e.opacity)}ye(Nt,Sn,Le(Vt,{brighter(e){return new Nt(this.h,
this.c,this.l+Mn*(e??1),this.opacity)},darker(e){return new Nt(this.h,this.c,this.l-Mn*(e??1),this.opacity)},rgb(){return so(this).rgb()}}));var oo=-.14861,zr=1.78277,
Rr=-.29227,En=-.90649,Ae=1.97294,qs=Ae*En,Ks=Ae*zr,Xs=zr*Rr-En*oo;function $c(e){if(e instanceof ee)return new ee(e.h,e.s,e.l,e.opacity);e instanceof q||(e=Br(e));
var t=e.r/255,n=e.g/255,r=e.b/255,i=(Xs*r+qs*t-Ks*n)/(Xs+qs-Ks),s=r-i,o=(Ae*(n-i)-Rr*s)/En,a=Math.sqrt(o*o+s*s)/(Ae*i*(1-i)),l=a?Math.atan2(o,s)*Zs-120:NaN;return new ee(
l<0?l+360:l,a,i,e.opacity)}function On(e,t,n,r){return arguments.length===1?$c(e):new ee(e,t,n,r??1)}function ee(e,t,n,r){this.h=+e,this.s=+t,this.l=+n,this.opacity=
+r}ye(ee,On,Le(Vt,{brighter(e){return e=e==null?be:Math.pow(be,e),new ee(this.h,this.s,this.l*e,this.opacity)},darker(e){return e=e==null?ne:Math.pow(ne,e),new ee(
this.h,this.s,this.l*e,this.opacity)},rgb(){var e=isNaN(this.h)?0:(this.h+120)*js,t=+this.l,n=isNaN(this.s)?0:this.s*t*(1-t),r=Math.cos(e),i=Math.sin(e);return new q(
255*(t+n*(oo*r+zr*i)),255*(t+n*(Rr*r+En*i)),255*(t+n*(Ae*r)),this.opacity)}}));function uo(e,t,n,r,i){var s=e*e,o=s*e;return((1-3*e+3*s-o)*t+(4-6*s+3*o)*n+(1+3*e+3*s-3*o)*r+o*i)/6}function Sc(e){var t=e.length-1;return function(n){var r=n<=
0?n=0:n>=1?(n=1,t-1):Math.floor(n*t),i=e[r],s=e[r+1],o=r>0?e[r-1]:2*i-s,a=r<t-1?e[r+2]:2*s-i;return uo((n-r/t)*t,o,i,s,a)}}function Ec(e){var t=e.length;return function(n){
var r=Math.floor(((n%=1)<0?++n:n)*t),i=e[(r+t-1)%t],s=e[r%t],o=e[(r+1)%t],a=e[(r+2)%t];return uo((n-r/t)*t,i,s,o,a)}}var Hr=e=>()=>e;function co(e,t){return function(n){
return e+n*t}}function Oc(e,t,n){return e=Math.pow(e,n),t=Math.pow(t,n)-e,n=1/n,function(r){return Math.pow(e+r*t,n)}}function Gr(e,t){var n=t-e;return n?co(e,n>
180||n<-180?n-360*Math.round(n/360):n):Hr(isNaN(e)?t:e)}function Cc(e){return(e=+e)==1?nt:function(t,n){return n-t?Oc(t,n,e):Hr(isNaN(t)?n:t)}}function nt(e,t){
var n=t-e;return n?co(e,n):Hr(isNaN(e)?t:e)}var qr=(function e(t){var n=Cc(t);function r(i,s){var o=n((i=Te(i)).r,(s=Te(s)).r),a=n(i.g,s.g),l=n(i.b,s.b),u=nt(i.
opacity,s.opacity);return function(c){return i.r=o(c),i.g=a(c),i.b=l(c),i.opacity=u(c),i+""}}return r.gamma=e,r})(1);function fo(e){return function(t){var n=t.length,
r=new Array(n),i=new Array(n),s=new Array(n),o,a;for(o=0;o<n;++o)a=Te(t[o]),r[o]=a.r||0,i[o]=a.g||0,s[o]=a.b||0;return r=e(r),i=e(i),s=e(s),a.opacity=1,function(l){
return a.r=r(l),a.g=i(l),a.b=s(l),a+""}}}var Pd=fo(Sc),Nd=fo(Ec);function At(e,t){return e=+e,t=+t,function(n){return e*(1-n)+t*n}}var Vr=/[-+]?(?:\d+\.?\d*|\.?\d+)(?:[eE][-+]?\d+)?/g,Fr=new RegExp(Vr.source,"g");function Pc(e){return function(){return e}}function Nc(e){return function(t){return e(
t)+""}}function ho(e,t){var n=Vr.lastIndex=Fr.lastIndex=0,r,i,s,o=-1,a=[],l=[];for(e=e+"",t=t+"";(r=Vr.exec(e))&&(i=Fr.exec(t));)(s=i.index)>n&&(s=t.slice(n,s),
a[o]?a[o]+=s:a[++o]=s),(r=r[0])===(i=i[0])?a[o]?a[o]+=i:a[++o]=i:(a[++o]=null,l.push({i:o,x:At(r,i)})),n=Fr.lastIndex;return n<t.length&&(s=t.slice(n),a[o]?a[o]+=
s:a[++o]=s),a.length<2?l[0]?Nc(l[0].x):Pc(t):(t=l.length,function(u){for(var c=0,h;c<t;++c)a[(h=l[c]).i]=h.x(u);return a.join("")})}var ao=180/Math.PI,Wr={translateX:0,translateY:0,rotate:0,skewX:0,scaleX:1,scaleY:1};function po(e,t,n,r,i,s){var o,a,l;return(o=Math.sqrt(e*e+t*t))&&(e/=o,t/=o),
(l=e*n+t*r)&&(n-=e*l,r-=t*l),(a=Math.sqrt(n*n+r*r))&&(n/=a,r/=a,l/=a),e*r<t*n&&(e=-e,t=-t,l=-l,o=-o),{translateX:i,translateY:s,rotate:Math.atan2(t,e)*ao,skewX:Math.
atan(l)*ao,scaleX:o,scaleY:a}}var Cn;function Ac(e){let t=new(typeof DOMMatrix=="function"?DOMMatrix:WebKitCSSMatrix)(e+"");return t.isIdentity?Wr:po(t.a,t.b,t.
c,t.d,t.e,t.f)}function Lc(e){return e==null||(Cn||(Cn=document.createElementNS("http://www.w3.org/2000/svg","g")),Cn.setAttribute("transform",e),!(e=Cn.transform.
baseVal.consolidate()))?Wr:(e=e.matrix,po(e.a,e.b,e.c,e.d,e.e,e.f))}function mo(e,t,n,r){function i(u){return u.length?u.pop()+" ":""}function s(u,c,h,p,d,m){if(u!==
h||c!==p){var b=d.push("translate(",null,t,null,n);m.push({i:b-4,x:At(u,h)},{i:b-2,x:At(c,p)})}else(h||p)&&d.push("translate("+h+t+p+n)}function o(u,c,h,p){u!==
c?(u-c>180?c+=360:c-u>180&&(u+=360),p.push({i:h.push(i(h)+"rotate(",null,r)-2,x:At(u,c)})):c&&h.push(i(h)+"rotate("+c+r)}function a(u,c,h,p){u!==c?p.push({i:h.push(
i(h)+"skewX(",null,r)-2,x:At(u,c)}):c&&h.push(i(h)+"skewX("+c+r)}function l(u,c,h,p,d,m){if(u!==h||c!==p){var b=d.push(i(d)+"scale(",null,",",null,")");m.push({
i:b-4,x:At(u,h)},{i:b-2,x:At(c,p)})}else(h!==1||p!==1)&&d.push(i(d)+"scale("+h+","+p+")")}return function(u,c){var h=[],p=[];return u=e(u),c=e(c),s(u.translateX,
u.translateY,c.translateX,c.translateY,h,p),o(u.rotate,c.rotate,h,p),a(u.skewX,c.skewX,h,p),l(u.scaleX,u.scaleY,c.scaleX,c.scaleY,h,p),u=c=null,function(d){for(var m=-1,
b=p.length,v;++m<b;)h[(v=p[m]).i]=v.x(d);return h.join("")}}}var go=mo(Ac,"px, ","px)","deg)"),bo=mo(Lc,", ",")",")"),Tc=1e-12;function lo(e){return((e=Math.exp(
e))+1/e)/2}function Ic(e){return((e=Math.exp(e))-1/e)/2}function Uc(e){return((e=Math.exp(2*e))-1)/(e+1)}var yo=(function e(t,n,r){function i(s,o){var a=s[0],l=s[1],
u=s[2],c=o[0],h=o[1],p=o[2],d=c-a,m=h-l,b=d*d+m*m,v,g;if(b<Tc)g=Math.log(p/u)/t,v=function(S){return[a+S*d,l+S*m,u*Math.exp(t*S*g)]};else{var w=Math.sqrt(b),x=(p*
p-u*u+r*b)/(2*u*n*w),$=(p*p-u*u-r*b)/(2*p*n*w),P=Math.log(Math.sqrt(x*x+1)-x),C=Math.log(Math.sqrt($*$+1)-$);g=(C-P)/t,v=function(S){var N=S*g,Q=lo(P),F=u/(n*w)*
(Q*Uc(t*N+P)-Ic(P));return[a+F*d,l+F*m,u*Q/lo(t*N+P)]}}return v.duration=Math.abs(g)*1e3*t/Math.SQRT2,v}return i.rho=function(s){var o=Math.max(.001,+s),a=o*o,l=a*
a;return e(o,a,l)},i})(Math.SQRT2,2,4);function vo(e){return function(t,n){var r=e((t=$n(t)).h,(n=$n(n)).h),i=nt(t.s,n.s),s=nt(t.l,n.l),o=nt(t.opacity,n.opacity);
return function(a){return t.h=r(a),t.s=i(a),t.l=s(a),t.opacity=o(a),t+""}}}var Ad=vo(Gr),Ld=vo(nt);function wo(e){return function(t,n){var r=e((t=Sn(t)).h,(n=Sn(n)).h),i=nt(t.c,n.c),s=nt(t.l,n.l),o=nt(t.opacity,n.opacity);return function(a){return t.h=r(a),t.
c=i(a),t.l=s(a),t.opacity=o(a),t+""}}}var Td=wo(Gr),Id=wo(nt);function _o(e){return(function t(n){n=+n;function r(i,s){var o=e((i=On(i)).h,(s=On(s)).h),a=nt(i.s,
s.s),l=nt(i.l,s.l),u=nt(i.opacity,s.opacity);return function(c){return i.h=o(c),i.s=a(c),i.l=l(Math.pow(c,n)),i.opacity=u(c),i+""}}return r.gamma=t,r})(1)}var Ud=_o(
Gr),Dd=_o(nt);var ve=0,Ue=0,Ie=0,ko=1e3,Pn,De,Nn=0,ie=0,Ln=0,Be=typeof performance=="object"&&performance.now?performance:Date,Mo=typeof window=="object"&&window.requestAnimationFrame?
window.requestAnimationFrame.bind(window):function(e){setTimeout(e,17)};function Tn(){return ie||(Mo(Dc),ie=Be.now()+Ln)}function Dc(){ie=0}function An(){this._call=
this._time=this._next=null}An.prototype=Xr.prototype={constructor:An,restart:function(e,t,n){if(typeof e!="function")throw new TypeError("callback is not a func\
tion");n=(n==null?Tn():+n)+(t==null?0:+t),!this._next&&De!==this&&(De?De._next=this:Pn=this,De=this),this._call=e,this._time=n,Kr()},stop:function(){this._call&&
(this._call=null,this._time=1/0,Kr())}};function Xr(e,t,n){var r=new An;return r.restart(e,t,n),r}function Bc(){Tn(),++ve;for(var e=Pn,t;e;)(t=ie-e._time)>=0&&e.
_call.call(void 0,t),e=e._next;--ve}function xo(){ie=(Nn=Be.now())+Ln,ve=Ue=0;try{Bc()}finally{ve=0,Rc(),ie=0}}function zc(){var e=Be.now(),t=e-Nn;t>ko&&(Ln-=t,
Nn=e)}function Rc(){for(var e,t=Pn,n,r=1/0;t;)t._call?(r>t._time&&(r=t._time),e=t,t=t._next):(n=t._next,t._next=null,t=e?e._next=n:Pn=n);De=e,Kr(r)}function Kr(e){
if(!ve){Ue&&(Ue=clearTimeout(Ue));var t=e-ie;t>24?(e<1/0&&(Ue=setTimeout(xo,Math.ceil(e-Be.now()-Ln)+1)),Ie&&(Ie=clearInterval(Ie))):(Ie||(Nn=Be.now(),Ie=setInterval(
zc,ko)),ve=1,Mo(xo))}}function Yr(e,t,n){var r=new An;return t=t==null?0:+t,r.restart(i=>{r.stop(),e(i+t)},t,n),r}function So(e){return((e*=2)<=1?e*e*e:(e-=2)*e*e+2)/2}var jr=3,Rd=(function e(t){t=+t;function n(r){return Math.pow(r,t)}return n.exponent=e,n})(jr),Fd=(function e(t){
t=+t;function n(r){return 1-Math.pow(1-r,t)}return n.exponent=e,n})(jr),Vd=(function e(t){t=+t;function n(r){return((r*=2)<=1?Math.pow(r,t):2-Math.pow(2-r,t))/2}
return n.exponent=e,n})(jr),Fc=Math.PI,Wd=Fc/2;function In(e){return(Math.pow(2,-10*e)-.0009765625)*1.0009775171065494}var $o=4/11,Hd=6/11,Gd=8/11,qd=3/4,Kd=9/11,Xd=10/11,Yd=15/16,jd=21/22,Zd=63/64,Qd=1/$o/$o;var Zr=1.70158,Jd=(function e(t){t=+t;function n(r){return(r=+r)*r*(t*(r-1)+r)}return n.overshoot=e,n})(Zr),tp=(function e(t){t=+t;function n(r){return--r*r*((r+
1)*t+r)+1}return n.overshoot=e,n})(Zr),ep=(function e(t){t=+t;function n(r){return((r*=2)<1?r*r*((t+1)*r-t):(r-=2)*r*((t+1)*r+t)+2)/2}return n.overshoot=e,n})(Zr),
we=2*Math.PI,Qr=1,Jr=.3,np=(function e(t,n){var r=Math.asin(1/(t=Math.max(1,t)))*(n/=we);function i(s){return t*In(- --s)*Math.sin((r-s)/n)}return i.amplitude=function(s){
return e(s,n*we)},i.period=function(s){return e(t,s)},i})(Qr,Jr),rp=(function e(t,n){var r=Math.asin(1/(t=Math.max(1,t)))*(n/=we);function i(s){return 1-t*In(s=
+s)*Math.sin((s+r)/n)}return i.amplitude=function(s){return e(s,n*we)},i.period=function(s){return e(t,s)},i})(Qr,Jr),ip=(function e(t,n){var r=Math.asin(1/(t=Math.
max(1,t)))*(n/=we);function i(s){return((s=s*2-1)<0?t*In(-s)*Math.sin((r-s)/n):2-t*In(s)*Math.sin((r+s)/n))/2}return i.amplitude=function(s){return e(s,n*we)},i.
period=function(s){return e(t,s)},i})(Qr,Jr);var Vc=Pe("start","end","cancel","interrupt"),Wc=[],Co=0,Eo=1,ti=2,Un=3,Oo=4,ei=5,Dn=6;function Bn(e,t,n,r,i,s){var o=e.__transition;if(!o)e.__transition={};else if(n in
o)return;Hc(e,n,{name:t,index:r,group:i,on:Vc,tween:Wc,time:s.time,delay:s.delay,duration:s.duration,ease:s.ease,timer:null,state:Co})}function ni(e,t){var n=bt(
e,t);if(n.state>Co)throw new Error("too late; already scheduled");return n}function kt(e,t){var n=bt(e,t);if(n.state>Un)throw new Error("too late; already runni\
ng");return n}function bt(e,t){var n=e.__transition;if(!n||!(n=n[t]))throw new Error("transition not found");return n}function Hc(e,t,n){var r=e.__transition,i;
r[t]=n,n.timer=Xr(s,0,n.time);function s(u){n.state=Eo,n.timer.restart(o,n.delay,n.time),n.delay<=u&&o(u-n.delay)}function o(u){var c,h,p,d;if(n.state!==Eo)return l();
for(c in r)if(d=r[c],d.name===n.name){if(d.state===Un)return Yr(o);d.state===Oo?(d.state=Dn,d.timer.stop(),d.on.call("interrupt",e,e.__data__,d.index,d.group),delete r[c]):
+c<t&&(d.state=Dn,d.timer.stop(),d.on.call("cancel",e,e.__data__,d.index,d.group),delete r[c])}if(Yr(function(){n.state===Un&&(n.state=Oo,n.timer.restart(a,n.delay,
n.time),a(u))}),n.state=ti,n.on.call("start",e,e.__data__,n.index,n.group),n.state===ti){for(n.state=Un,i=new Array(p=n.tween.length),c=0,h=-1;c<p;++c)(d=n.tween[c].
value.call(e,e.__data__,n.index,n.group))&&(i[++h]=d);i.length=h+1}}function a(u){for(var c=u<n.duration?n.ease.call(null,u/n.duration):(n.timer.restart(l),n.state=
ei,1),h=-1,p=i.length;++h<p;)i[h].call(e,c);n.state===ei&&(n.on.call("end",e,e.__data__,n.index,n.group),l())}function l(){n.state=Dn,n.timer.stop(),delete r[t];
for(var u in r)return;delete e.__transition}}function ze(e,t){var n=e.__transition,r,i,s=!0,o;if(n){t=t==null?null:t+"";for(o in n){if((r=n[o]).name!==t){s=!1;continue}
i=r.state>ti&&r.state<ei,r.state=Dn,r.timer.stop(),r.on.call(i?"interrupt":"cancel",e,e.__data__,r.index,r.group),delete n[o]}s&&delete e.__transition}}function Gc(e){
return this.each(function(){ze(this,e)})}function qc(e,t){var n,r;return function(){var i=kt(this,e),s=i.tween;if(s!==n){r=n=s;for(var o=0,a=r.length;o<a;++o)if(r[o].
name===t){r=r.slice(),r.splice(o,1);break}}i.tween=r}}function Kc(e,t,n){var r,i;if(typeof n!="function")throw new Error;return function(){var s=kt(this,e),o=s.
tween;if(o!==r){i=(r=o).slice();for(var a={name:t,value:n},l=0,u=i.length;l<u;++l)if(i[l].name===t){i[l]=a;break}l===u&&i.push(a)}s.tween=i}}function Xc(e,t){var n=this.
_id;if(e+="",arguments.length<2){for(var r=bt(this.node(),n).tween,i=0,s=r.length,o;i<s;++i)if((o=r[i]).name===e)return o.value;return null}return this.each((t==
null?qc:Kc)(n,e,t))}function ri(e,t,n){var r=e._id;return e.each(function(){var i=kt(this,r);(i.value||(i.value={}))[t]=n.apply(this,arguments)}),function(i){return bt(
i,r).value[t]}}function Po(e,t){var n;return(typeof t=="number"?At:t instanceof re?qr:(n=re(t))?(t=n,qr):ho)(e,t)}function Yc(e){return function(){this.removeAttribute(
e)}}function jc(e){return function(){this.removeAttributeNS(e.space,e.local)}}function Zc(e,t,n){var r,i=n+"",s;return function(){var o=this.getAttribute(e);return o===
i?null:o===r?s:s=t(r=o,n)}}function Qc(e,t,n){var r,i=n+"",s;return function(){var o=this.getAttributeNS(e.space,e.local);return o===i?null:o===r?s:s=t(r=o,n)}}
function Jc(e,t,n){var r,i,s;return function(){var o,a=n(this),l;return a==null?void this.removeAttribute(e):(o=this.getAttribute(e),l=a+"",o===l?null:o===r&&l===
i?s:(i=l,s=t(r=o,a)))}}function tf(e,t,n){var r,i,s;return function(){var o,a=n(this),l;return a==null?void this.removeAttributeNS(e.space,e.local):(o=this.getAttributeNS(
e.space,e.local),l=a+"",o===l?null:o===r&&l===i?s:(i=l,s=t(r=o,a)))}}function ef(e,t){var n=Ce(e),r=n==="transform"?bo:Po;return this.attrTween(e,typeof t=="fun\
ction"?(n.local?tf:Jc)(n,r,ri(this,"attr."+e,t)):t==null?(n.local?jc:Yc)(n):(n.local?Qc:Zc)(n,r,t))}function nf(e,t){return function(n){this.setAttribute(e,t.call(
this,n))}}function rf(e,t){return function(n){this.setAttributeNS(e.space,e.local,t.call(this,n))}}function sf(e,t){var n,r;function i(){var s=t.apply(this,arguments);
return s!==r&&(n=(r=s)&&rf(e,s)),n}return i._value=t,i}function of(e,t){var n,r;function i(){var s=t.apply(this,arguments);return s!==r&&(n=(r=s)&&nf(e,s)),n}return i.
_value=t,i}function af(e,t){var n="attr."+e;if(arguments.length<2)return(n=this.tween(n))&&n._value;if(t==null)return this.tween(n,null);if(typeof t!="function")
throw new Error;var r=Ce(e);return this.tween(n,(r.local?sf:of)(r,t))}function lf(e,t){return function(){ni(this,e).delay=+t.apply(this,arguments)}}function uf(e,t){
return t=+t,function(){ni(this,e).delay=t}}function cf(e){var t=this._id;return arguments.length?this.each((typeof e=="function"?lf:uf)(t,e)):bt(this.node(),t).
delay}function ff(e,t){return function(){kt(this,e).duration=+t.apply(this,arguments)}}function hf(e,t){return t=+t,function(){kt(this,e).duration=t}}function df(e){
var t=this._id;return arguments.length?this.each((typeof e=="function"?ff:hf)(t,e)):bt(this.node(),t).duration}function pf(e,t){if(typeof t!="function")throw new Error;
return function(){kt(this,e).ease=t}}function mf(e){var t=this._id;return arguments.length?this.each(pf(t,e)):bt(this.node(),t).ease}function gf(e,t){return function(){
var n=t.apply(this,arguments);if(typeof n!="function")throw new Error;kt(this,e).ease=n}}function bf(e){if(typeof e!="function")throw new Error;return this.each(
gf(this._id,e))}function yf(e){typeof e!="function"&&(e=Cr(e));for(var t=this._groups,n=t.length,r=new Array(n),i=0;i<n;++i)for(var s=t[i],o=s.length,a=r[i]=[],
l,u=0;u<o;++u)(l=s[u])&&e.call(l,l.__data__,u,s)&&a.push(l);return new Tt(r,this._parents,this._name,this._id)}function vf(e){if(e._id!==this._id)throw new Error;
for(var t=this._groups,n=e._groups,r=t.length,i=n.length,s=Math.min(r,i),o=new Array(r),a=0;a<s;++a)for(var l=t[a],u=n[a],c=l.length,h=o[a]=new Array(c),p,d=0;d<
c;++d)(p=l[d]||u[d])&&(h[d]=p);for(;a<r;++a)o[a]=t[a];return new Tt(o,this._parents,this._name,this._id)}function wf(e){return(e+"").trim().split(/^|\s+/).every(
function(t){var n=t.indexOf(".");return n>=0&&(t=t.slice(0,n)),!t||t==="start"})}function _f(e,t,n){var r,i,s=wf(t)?ni:kt;return function(){var o=s(this,e),a=o.
on;a!==r&&(i=(r=a).copy()).on(t,n),o.on=i}}function xf(e,t){var n=this._id;return arguments.length<2?bt(this.node(),n).on.on(e):this.each(_f(n,e,t))}function kf(e){
return function(){var t=this.parentNode;for(var n in this.__transition)if(+n!==e)return;t&&t.removeChild(this)}}function Mf(){return this.on("end.remove",kf(this.
_id))}function $f(e){var t=this._name,n=this._id;typeof e!="function"&&(e=vn(e));for(var r=this._groups,i=r.length,s=new Array(i),o=0;o<i;++o)for(var a=r[o],l=a.
length,u=s[o]=new Array(l),c,h,p=0;p<l;++p)(c=a[p])&&(h=e.call(c,c.__data__,p,a))&&("__data__"in c&&(h.__data__=c.__data__),u[p]=h,Bn(u[p],t,n,p,u,bt(c,n)));return new Tt(
s,this._parents,t,n)}function Sf(e){var t=this._name,n=this._id;typeof e!="function"&&(e=Or(e));for(var r=this._groups,i=r.length,s=[],o=[],a=0;a<i;++a)for(var l=r[a],
u=l.length,c,h=0;h<u;++h)if(c=l[h]){for(var p=e.call(c,c.__data__,h,l),d,m=bt(c,n),b=0,v=p.length;b<v;++b)(d=p[b])&&Bn(d,t,n,b,p,m);s.push(p),o.push(c)}return new Tt(
s,o,t,n)}var Ef=Qt.prototype.constructor;function Of(){return new Ef(this._groups,this._parents)}function Cf(e,t){var n,r,i;return function(){var s=Zt(this,e),o=(this.
style.removeProperty(e),Zt(this,e));return s===o?null:s===n&&o===r?i:i=t(n=s,r=o)}}function No(e){return function(){this.style.removeProperty(e)}}function Pf(e,t,n){
var r,i=n+"",s;return function(){var o=Zt(this,e);return o===i?null:o===r?s:s=t(r=o,n)}}function Nf(e,t,n){var r,i,s;return function(){var o=Zt(this,e),a=n(this),
l=a+"";return a==null&&(l=a=(this.style.removeProperty(e),Zt(this,e))),o===l?null:o===r&&l===i?s:(i=l,s=t(r=o,a))}}function Af(e,t){var n,r,i,s="style."+t,o="en\
d."+s,a;return function(){var l=kt(this,e),u=l.on,c=l.value[s]==null?a||(a=No(t)):void 0;(u!==n||i!==c)&&(r=(n=u).copy()).on(o,i=c),l.on=r}}function Lf(e,t,n){var r=(e+=
"")=="transform"?go:Po;return t==null?this.styleTween(e,Cf(e,r)).on("end.style."+e,No(e)):typeof t=="function"?this.styleTween(e,Nf(e,r,ri(this,"style."+e,t))).
each(Af(this._id,e)):this.styleTween(e,Pf(e,r,t),n).on("end.style."+e,null)}function Tf(e,t,n){return function(r){this.style.setProperty(e,t.call(this,r),n)}}function If(e,t,n){
var r,i;function s(){var o=t.apply(this,arguments);return o!==i&&(r=(i=o)&&Tf(e,o,n)),r}return s._value=t,s}function Uf(e,t,n){var r="style."+(e+="");if(arguments.
length<2)return(r=this.tween(r))&&r._value;if(t==null)return this.tween(r,null);if(typeof t!="function")throw new Error;return this.tween(r,If(e,t,n??""))}function Df(e){
return function(){this.textContent=e}}function Bf(e){return function(){var t=e(this);this.textContent=t??""}}function zf(e){return this.tween("text",typeof e=="\
function"?Bf(ri(this,"text",e)):Df(e==null?"":e+""))}function Rf(e){return function(t){this.textContent=e.call(this,t)}}function Ff(e){var t,n;function r(){var i=e.
apply(this,arguments);return i!==n&&(t=(n=i)&&Rf(i)),t}return r._value=e,r}function Vf(e){var t="text";if(arguments.length<1)return(t=this.tween(t))&&t._value;if(e==
null)return this.tween(t,null);if(typeof e!="function")throw new Error;return this.tween(t,Ff(e))}function Wf(){for(var e=this._name,t=this._id,n=Ao(),r=this._groups,
i=r.length,s=0;s<i;++s)for(var o=r[s],a=o.length,l,u=0;u<a;++u)if(l=o[u]){var c=bt(l,t);Bn(l,e,n,u,o,{time:c.time+c.delay+c.duration,delay:0,duration:c.duration,
ease:c.ease})}return new Tt(r,this._parents,e,n)}function Hf(){var e,t,n=this,r=n._id,i=n.size();return new Promise(function(s,o){var a={value:o},l={value:function(){
--i===0&&s()}};n.each(function(){var u=kt(this,r),c=u.on;c!==e&&(t=(e=c).copy(),t._.cancel.push(a),t._.interrupt.push(a),t._.end.push(l)),u.on=t}),i===0&&s()})}
var Gf=0;function Tt(e,t,n,r){this._groups=e,this._parents=t,this._name=n,this._id=r}function qf(e){return Qt().transition(e)}function Ao(){return++Gf}var Lt=Qt.
prototype;Tt.prototype=qf.prototype={constructor:Tt,select:$f,selectAll:Sf,selectChild:Lt.selectChild,selectChildren:Lt.selectChildren,filter:yf,merge:vf,selection:Of,
transition:Wf,call:Lt.call,nodes:Lt.nodes,node:Lt.node,size:Lt.size,empty:Lt.empty,each:Lt.each,on:xf,attr:ef,attrTween:af,style:Lf,styleTween:Uf,text:zf,textTween:Vf,
remove:Mf,tween:Xc,delay:cf,duration:df,ease:mf,easeVarying:bf,end:Hf,[Symbol.iterator]:Lt[Symbol.iterator]};var Kf={time:null,delay:0,duration:250,ease:So};function Xf(e,t){
for(var n;!(n=e.__transition)||!(n=n[t]);)if(!(e=e.parentNode))throw new Error(`transition ${t} not found`);return n}function Yf(e){var t,n;e instanceof Tt?(t=e.
_id,e=e._name):(t=Ao(),(n=Kf).time=Tn(),e=e==null?null:e+"");for(var r=this._groups,i=r.length,s=0;s<i;++s)for(var o=r[s],a=o.length,l,u=0;u<a;++u)(l=o[u])&&Bn(
l,e,t,u,o,n||Xf(l,t));return new Tt(r,this._parents,e,t)}Qt.prototype.interrupt=Gc;Qt.prototype.transition=Yf;var zn=e=>()=>e;function jf(e,{sourceEvent:t,target:n,transform:r,dispatch:i}){Object.defineProperties(this,{type:{value:e,enumerable:!0,configurable:!0},sourceEvent:{
value:t,enumerable:!0,configurable:!0},target:{value:n,enumerable:!0,configurable:!0},transform:{value:r,enumerable:!0,configurable:!0},_:{value:i}})}function It(e,t,n){
this.k=e,this.x=t,this.y=n}It.prototype={constructor:It,scale:function(e){return e===1?this:new It(this.k*e,this.x,this.y)},translate:function(e,t){return e===0&
t===0?this:new It(this.k,this.x+this.k*e,this.y+this.k*t)},apply:function(e){return[e[0]*this.k+this.x,e[1]*this.k+this.y]},applyX:function(e){return e*this.k+this.
x},applyY:function(e){return e*this.k+this.y},invert:function(e){return[(e[0]-this.x)/this.k,(e[1]-this.y)/this.k]},invertX:function(e){return(e-this.x)/this.k},
invertY:function(e){return(e-this.y)/this.k},rescaleX:function(e){return e.copy().domain(e.range().map(this.invertX,this).map(e.invert,e))},rescaleY:function(e){
return e.copy().domain(e.range().map(this.invertY,this).map(e.invert,e))},toString:function(){return"translate("+this.x+","+this.y+") scale("+this.k+")"}};var Wt=new It(
1,0,0);Zf.prototype=It.prototype;function Zf(e){for(;!e.__zoom;)if(!(e=e.parentNode))return Wt;return e.__zoom}function ii(e){e.stopImmediatePropagation()}function Re(e){
e.preventDefault(),e.stopImmediatePropagation()}function Qf(e){return(!e.ctrlKey||e.type==="wheel")&&!e.button}function Jf(){var e=this;return e instanceof SVGElement?
(e=e.ownerSVGElement||e,e.hasAttribute("viewBox")?(e=e.viewBox.baseVal,[[e.x,e.y],[e.x+e.width,e.y+e.height]]):[[0,0],[e.width.baseVal.value,e.height.baseVal.value]]):
[[0,0],[e.clientWidth,e.clientHeight]]}function Lo(){return this.__zoom||Wt}function th(e){return-e.deltaY*(e.deltaMode===1?.05:e.deltaMode?1:.002)*(e.ctrlKey?10:
1)}function eh(){return navigator.maxTouchPoints||"ontouchstart"in this}function nh(e,t,n){var r=e.invertX(t[0][0])-n[0][0],i=e.invertX(t[1][0])-n[1][0],s=e.invertY(
t[0][1])-n[0][1],o=e.invertY(t[1][1])-n[1][1];return e.translate(i>r?(r+i)/2:Math.min(0,r)||Math.max(0,i),o>s?(s+o)/2:Math.min(0,s)||Math.max(0,o))}function To(){
var e=Qf,t=Jf,n=nh,r=th,i=eh,s=[0,1/0],o=[[-1/0,-1/0],[1/0,1/0]],a=250,l=yo,u=Pe("start","zoom","end"),c,h,p,d=500,m=150,b=0,v=10;function g(y){y.property("__zo\
om",Lo).on("wheel.zoom",N,{passive:!1}).on("mousedown.zoom",Q).on("dblclick.zoom",F).filter(i).on("touchstart.zoom",Z).on("touchmove.zoom",H).on("touchend.zoom \
touchcancel.zoom",K).style("-webkit-tap-highlight-color","rgba(0,0,0,0)")}g.transform=function(y,k,_,M){var E=y.selection?y.selection():y;E.property("__zoom",Lo),
y!==E?P(y,k,_,M):E.interrupt().each(function(){C(this,arguments).event(M).start().zoom(null,typeof k=="function"?k.apply(this,arguments):k).end()})},g.scaleBy=function(y,k,_,M){
g.scaleTo(y,function(){var E=this.__zoom.k,L=typeof k=="function"?k.apply(this,arguments):k;return E*L},_,M)},g.scaleTo=function(y,k,_,M){g.transform(y,function(){
var E=t.apply(this,arguments),L=this.__zoom,I=_==null?$(E):typeof _=="function"?_.apply(this,arguments):_,B=L.invert(I),W=typeof k=="function"?k.apply(this,arguments):
k;return n(x(w(L,W),I,B),E,o)},_,M)},g.translateBy=function(y,k,_,M){g.transform(y,function(){return n(this.__zoom.translate(typeof k=="function"?k.apply(this,arguments):
k,typeof _=="function"?_.apply(this,arguments):_),t.apply(this,arguments),o)},null,M)},g.translateTo=function(y,k,_,M,E){g.transform(y,function(){var L=t.apply(
this,arguments),I=this.__zoom,B=M==null?$(L):typeof M=="function"?M.apply(this,arguments):M;return n(Wt.translate(B[0],B[1]).scale(I.k).translate(typeof k=="fun\
ction"?-k.apply(this,arguments):-k,typeof _=="function"?-_.apply(this,arguments):-_),L,o)},M,E)};function w(y,k){return k=Math.max(s[0],Math.min(s[1],k)),k===y.
k?y:new It(k,y.x,y.y)}function x(y,k,_){var M=k[0]-_[0]*y.k,E=k[1]-_[1]*y.k;return M===y.x&&E===y.y?y:new It(y.k,M,E)}function $(y){return[(+y[0][0]+ +y[1][0])/
2,(+y[0][1]+ +y[1][1])/2]}function P(y,k,_,M){y.on("start.zoom",function(){C(this,arguments).event(M).start()}).on("interrupt.zoom end.zoom",function(){C(this,arguments).
event(M).end()}).tween("zoom",function(){var E=this,L=arguments,I=C(E,L).event(M),B=t.apply(E,L),W=_==null?$(B):typeof _=="function"?_.apply(E,L):_,yt=Math.max(
B[1][0]-B[0][0],B[1][1]-B[0][1]),X=E.__zoom,lt=typeof k=="function"?k.apply(E,L):k,Mt=l(X.invert(W).concat(yt/X.k),lt.invert(W).concat(yt/lt.k));return function(ut){
if(ut===1)ut=lt;else{var $t=Mt(ut),Wn=yt/$t[2];ut=new It(Wn,W[0]-$t[0]*Wn,W[1]-$t[1]*Wn)}I.zoom(null,ut)}})}function C(y,k,_){return!_&&y.__zooming||new S(y,k)}
function S(y,k){this.that=y,this.args=k,this.active=0,this.sourceEvent=null,this.extent=t.apply(y,k),this.taps=0}S.prototype={event:function(y){return y&&(this.
sourceEvent=y),this},start:function(){return++this.active===1&&(this.that.__zooming=this,this.emit("start")),this},zoom:function(y,k){return this.mouse&&y!=="mo\
use"&&(this.mouse[1]=k.invert(this.mouse[0])),this.touch0&&y!=="touch"&&(this.touch0[1]=k.invert(this.touch0[0])),this.touch1&&y!=="touch"&&(this.touch1[1]=k.invert(
this.touch1[0])),this.that.__zoom=k,this.emit("zoom"),this},end:function(){return--this.active===0&&(delete this.that.__zooming,this.emit("end")),this},emit:function(y){
var k=j(this.that).datum();u.call(y,this.that,new jf(y,{sourceEvent:this.sourceEvent,target:g,transform:this.that.__zoom,dispatch:u}),k)}};function N(y,...k){if(!e.
apply(this,arguments))return;var _=C(this,k).event(y),M=this.__zoom,E=Math.max(s[0],Math.min(s[1],M.k*Math.pow(2,r.apply(this,arguments)))),L=Pt(y);if(_.wheel)(_.
mouse[0][0]!==L[0]||_.mouse[0][1]!==L[1])&&(_.mouse[1]=M.invert(_.mouse[0]=L)),clearTimeout(_.wheel);else{if(M.k===E)return;_.mouse=[L,M.invert(L)],ze(this),_.start()}
Re(y),_.wheel=setTimeout(I,m),_.zoom("mouse",n(x(w(M,E),_.mouse[0],_.mouse[1]),_.extent,o));function I(){_.wheel=null,_.end()}}function Q(y,...k){if(p||!e.apply(
this,arguments))return;var _=y.currentTarget,M=C(this,k,!0).event(y),E=j(y.view).on("mousemove.zoom",W,!0).on("mouseup.zoom",yt,!0),L=Pt(y,_),I=y.clientX,B=y.clientY;
Us(y.view),ii(y),M.mouse=[L,this.__zoom.invert(L)],ze(this),M.start();function W(X){if(Re(X),!M.moved){var lt=X.clientX-I,Mt=X.clientY-B;M.moved=lt*lt+Mt*Mt>b}M.
event(X).zoom("mouse",n(x(M.that.__zoom,M.mouse[0]=Pt(X,_),M.mouse[1]),M.extent,o))}function yt(X){E.on("mousemove.zoom mouseup.zoom",null),Ds(X.view,M.moved),Re(
X),M.event(X).end()}}function F(y,...k){if(e.apply(this,arguments)){var _=this.__zoom,M=Pt(y.changedTouches?y.changedTouches[0]:y,this),E=_.invert(M),L=_.k*(y.shiftKey?
.5:2),I=n(x(w(_,L),M,E),t.apply(this,k),o);Re(y),a>0?j(this).transition().duration(a).call(P,I,M,y):j(this).call(g.transform,I,M,y)}}function Z(y,...k){if(e.apply(
this,arguments)){var _=y.touches,M=_.length,E=C(this,k,y.changedTouches.length===M).event(y),L,I,B,W;for(ii(y),I=0;I<M;++I)B=_[I],W=Pt(B,this),W=[W,this.__zoom.
invert(W),B.identifier],E.touch0?!E.touch1&&E.touch0[2]!==W[2]&&(E.touch1=W,E.taps=0):(E.touch0=W,L=!0,E.taps=1+!!c);c&&(c=clearTimeout(c)),L&&(E.taps<2&&(h=W[0],
c=setTimeout(function(){c=null},d)),ze(this),E.start())}}function H(y,...k){if(this.__zooming){var _=C(this,k).event(y),M=y.changedTouches,E=M.length,L,I,B,W;for(Re(
y),L=0;L<E;++L)I=M[L],B=Pt(I,this),_.touch0&&_.touch0[2]===I.identifier?_.touch0[0]=B:_.touch1&&_.touch1[2]===I.identifier&&(_.touch1[0]=B);if(I=_.that.__zoom,_.
touch1){var yt=_.touch0[0],X=_.touch0[1],lt=_.touch1[0],Mt=_.touch1[1],ut=(ut=lt[0]-yt[0])*ut+(ut=lt[1]-yt[1])*ut,$t=($t=Mt[0]-X[0])*$t+($t=Mt[1]-X[1])*$t;I=w(I,
Math.sqrt(ut/$t)),B=[(yt[0]+lt[0])/2,(yt[1]+lt[1])/2],W=[(X[0]+Mt[0])/2,(X[1]+Mt[1])/2]}else if(_.touch0)B=_.touch0[0],W=_.touch0[1];else return;_.zoom("touch",
n(x(I,B,W),_.extent,o))}}function K(y,...k){if(this.__zooming){var _=C(this,k).event(y),M=y.changedTouches,E=M.length,L,I;for(ii(y),p&&clearTimeout(p),p=setTimeout(
function(){p=null},d),L=0;L<E;++L)I=M[L],_.touch0&&_.touch0[2]===I.identifier?delete _.touch0:_.touch1&&_.touch1[2]===I.identifier&&delete _.touch1;if(_.touch1&&
!_.touch0&&(_.touch0=_.touch1,delete _.touch1),_.touch0)_.touch0[1]=this.__zoom.invert(_.touch0[0]);else if(_.end(),_.taps===2&&(I=Pt(I,this),Math.hypot(h[0]-I[0],
h[1]-I[1])<v)){var B=j(this).on("dblclick.zoom");B&&B.apply(this,arguments)}}}return g.wheelDelta=function(y){return arguments.length?(r=typeof y=="function"?y:
zn(+y),g):r},g.filter=function(y){return arguments.length?(e=typeof y=="function"?y:zn(!!y),g):e},g.touchable=function(y){return arguments.length?(i=typeof y=="\
function"?y:zn(!!y),g):i},g.extent=function(y){return arguments.length?(t=typeof y=="function"?y:zn([[+y[0][0],+y[0][1]],[+y[1][0],+y[1][1]]]),g):t},g.scaleExtent=
function(y){return arguments.length?(s[0]=+y[0],s[1]=+y[1],g):[s[0],s[1]]},g.translateExtent=function(y){return arguments.length?(o[0][0]=+y[0][0],o[1][0]=+y[1][0],
o[0][1]=+y[0][1],o[1][1]=+y[1][1],g):[[o[0][0],o[0][1]],[o[1][0],o[1][1]]]},g.constrain=function(y){return arguments.length?(n=y,g):n},g.duration=function(y){return arguments.
length?(a=+y,g):a},g.interpolate=function(y){return arguments.length?(l=y,g):l},g.on=function(){var y=u.on.apply(u,arguments);return y===u?g:y},g.clickDistance=
function(y){return arguments.length?(b=(y=+y)*y,g):Math.sqrt(b)},g.tapDistance=function(y){return arguments.length?(v=+y,g):v},g}var Rn=.25,_e=30,Uo=1.15,si=e=>Math.floor(Math.log(e)/Math.log(Uo)+1e-6),Io=e=>Uo**e,Fn=class e extends G{state={window:null};svg=ct();world=ct();zooming;transform=Wt;drawn=null;places=new WeakMap;lit=[];lastFold=null;measured=[
1,1];watcher=new ResizeObserver(()=>this.resized());componentDidMount(){this.props.mounted(this);let t=this.svg.current;this.zooming=To().scaleExtent([.015,4]).
extent(()=>[[0,0],this.size()]).filter(n=>n.type==="wheel"?n.ctrlKey||n.metaKey:!n.button).on("zoom",n=>{this.transform=n.transform,this.world.current.setAttribute(
"transform",n.transform.toString()),this.lookAround(),this.holdNames()}),j(t).call(this.zooming).on("dblclick.zoom",null),t.addEventListener("wheel",n=>{if(n.ctrlKey||
n.metaKey)return;n.preventDefault();let r=n.deltaMode?16:1,[i,s]=n.shiftKey?[n.deltaY,0]:[n.deltaX,n.deltaY];this.moveBy(-i*r/this.transform.k,-s*r/this.transform.
k)},{passive:!1}),this.watcher.observe(t),this.resized(),this.fit(),this.brighten()}componentWillUnmount(){this.watcher.disconnect()}brighten(){for(let n of this.
lit)n.classList.remove("bright");let t=new Set([...this.props.lit?.lines??[]].map(n=>n.key));this.lit=t.size?[...this.world.current.querySelectorAll(".base [dat\
a-line]")].filter(n=>t.has(n.dataset.line)):[];for(let n of this.lit)n.classList.add("bright")}holdNames(){let t=this.transform.invertX(8);for(let n of this.world.
current.querySelectorAll("[data-slack]")){let r=Math.min(Number(n.dataset.slack),t-Number(n.getAttribute("x")));n.setAttribute("transform",`translate(${Math.max(
0,r)})`)}}componentDidUpdate(t){this.brighten(),this.holdNames(),t.model!==this.props.model?this.fit():t.scene!==this.props.scene&&this.lookAround()}componentWillReceiveProps({
model:t,scene:n}){let{model:r,scene:i}=this.props,s=this.lastFold?.frame;if(t!==r||n===i||s===void 0)return;let[o,a]=[i,n].map(l=>l.byUnit.get(-s-1));o&&a&&this.
moveBy(o.mid-a.mid,o.y-a.y)}shownSize(){return this.measured[0]>1?this.measured:null}size(){return this.measured}resized(){let{clientWidth:t,clientHeight:n}=this.
svg.current;this.measured=[Math.max(1,t),Math.max(1,n)],this.lookAround()}moveBy(t,n){(t||n)&&this.zooming.translateBy(j(this.svg.current),t,n)}scaleBy(t){this.
zooming.scaleBy(j(this.svg.current),t)}fit(){let{left:t,right:n,height:r}=this.props.scene,[i,s]=this.size(),o=fe(i),a=(i-2*o)/(n-t),l=(s-2*_e)/r,u=Math.max(Math.
min(a,l,1.15),Math.min(a,.85),on),c=a<u?Math.min(o-t*u,Math.max(i-o-n*u,i/2)):i/2-(t+n)/2*u,h=r*u<s-2*_e?(s-r*u)/2:_e;this.zooming.transform(j(this.svg.current),
Wt.translate(c,h).scale(u))}fitAll(){let{left:t,right:n,height:r}=this.props.scene,[i,s]=this.size(),o=Math.min((i-2*fe(i))/(n-t),(s-2*_e)/r,1.15),[a,l]=[i/2-(t+
n)/2*o,s/2-r/2*o];this.zooming.transform(j(this.svg.current),Wt.translate(a,l).scale(o))}show(t){let n=this.props.scene.byUnit.get(t);if(!n)return;let[r,i]=this.
size(),{k:s}=this.transform,[o,a]=this.transform.apply([n.mid,n.y]);if(o>60&&o<r-60&&a>30&&a+Math.min(n.h*s,i/2)<i-20&&s>=.45)return;let u=Math.max(s,.8),c=n.y+
Math.min(n.h,i/u)/2;this.zooming.transform(j(this.svg.current),Wt.translate(r/2-n.mid*u,i/2-c*u).scale(u))}lookAround(){let[t,n]=this.size(),{k:r}=this.transform,
[i,s]=this.transform.invert([0,0]),o=this.state.window,[a,l]=[t/r,n/r];o&&o.grade===si(r)&&i>=o.x&&s>=o.y&&i+a<=o.x+o.w&&s+l<=o.y+o.h||this.setState({window:{x:i-
a*Rn,y:s-l*Rn,w:(1+2*Rn)*a,h:(1+2*Rn)*l,grade:si(r)}})}static within(t,n){let{x:r,y:i,w:s,h:o}=n,a=(c,h,p,d)=>c<r+s&&h<i+o&&c+p>r&&h+d>i,l=t.boxes.filter(c=>it(
c).some(h=>a(h.x-120,h.y,h.w+240,h.h))),u=new Map;for(let c of t.lines){let[h,p,d,m]=c.box;if(!a(h-20,p,d+40,m))continue;let b=u.get(c.within);b?b.push(c):u.set(
c.within,[c])}return{boxes:l,lines:u}}placesAt(t){let{model:n,scene:r}=this.props,i=fn(t),s=this.places.get(r)??new Map;return this.places.set(r,s),s.has(i)||s.
set(i,new nn(n,r,i,vr)),s.get(i)}labelsAt(t,n){return t.near?this.placesAt(t).labels.filter(({line:r})=>Oe(r,n)):[]}drawnIn(t){let{model:n,opened:r,scene:i,marks:s}=this.
props,o=yr(Io(t.grade)),a=cr(i,o.least),{x:l,y:u,w:c,h}=t,p=this.labelsAt(o,a).filter(d=>d.x>l-160&&d.x<l+c&&d.y>u&&d.y<u+h+20);return f(cs,{model:n,opened:r,marks:s,
detail:o,shown:a,labels:p,...e.within(i,t)})}visible(){let[t,n]=this.size(),{k:r}=this.transform,[i,s]=this.transform.invert([0,0]),o={x:i,y:s,w:t/r,h:n/r,grade:si(
r)};return{...o,node:this.drawnIn(o)}}base(t){let{model:n,scene:r,marks:i}=this.props,s=[n,r,i.matches,t];if(this.drawn?.key.every((a,l)=>a===s[l]))return this.
drawn.node;let o=this.drawnIn(t);return this.drawn={key:s,node:o},o}overlay(t,n){let{model:r,opened:i,scene:s,marks:o}=this.props,a=yr(Io(n.grade)),l=cr(s,a.least),
u=fn(a),c=new Map;for(let[d,m]of t.units){let b=s.byUnit.get(d);for(;b&&!l.units.has(b.unit);)b=s.byUnit.get(b.around);b&&c.get(b)!=="self"&&c.set(b,m)}let h=a.
near?[...t.lines].filter(d=>d.side==="bridge"&&Oe(d,l)):[],p=h.length?this.placesAt(a).of(h):[];return f("g",{class:"overlay",children:[[...c].map(([d,m])=>d.kind===
"open"?it(d).map(({x:b,y:v,w:g,h:w})=>f("rect",{class:"ring",x:b,y:v,width:g,height:w,rx:8},`${d.unit} ${b}`)):f(_r,{model:r,opened:i,box:d,detail:a,marks:o,role:`\
is-${m}`},d.unit)),p.map(d=>f(wr,{label:d,size:u,bright:!0},d.line.key))]})}at(t){let n=t.target,r=s=>{let o=n.closest(`[data-${s}]`)?.getAttribute(`data-${s}`);
return o==null?null:Number(o)},i=r("loop");return{unit:r("unit"),fold:r("fold"),turn:i===null?null:[i,r("turn")]}}clicked=t=>{let{unit:n,fold:r,turn:i}=this.at(
t),{scene:s}=this.props;if(t.detail>1)return;if(this.lastFold=null,i)return this.props.onTurn(...i);let o=n!==null&&s.byUnit.get(n)?.kind==="folded"?-n-1:r;if(o===
null)return this.props.onClick(n);this.lastFold={frame:o,when:t.timeStamp},this.props.onFold(o)};doubled=t=>{this.lastFold&&t.timeStamp-this.lastFold.when<700&&
this.props.onOpenAll(this.lastFold.frame)};hold(t){this.lastFold?.frame!==t&&(this.lastFold={frame:t,when:-1/0})}render({scene:t,lit:n,pinned:r,onHover:i}){let s=this.
state.window;return f("svg",{ref:this.svg,class:`picture${r?" pinned":""}`,tabindex:0,role:"application","aria-label":"forward and backward","data-boxes":t.boxes.
length,onClick:this.clicked,onDblClick:this.doubled,onMouseOver:o=>i(this.at(o).unit),onMouseLeave:()=>i(null),children:[f(hn,{}),f("g",{ref:this.world,children:[
f("g",{class:"base",children:s&&this.base(s)}),s&&n&&this.overlay(n,s)]})]})}};function Do(e,t){let n=new Map,r=e.data.nodes;for(let i=0;i<e.count;i++){let s=t(i),o=e.isForward(i)?0:1,a=n.get(s)??{name:s,steps:[0,0],flops:[0,0],bytes:[0,0]};
n.set(s,a),a.steps[o]++,a.flops[o]+=r.flops[i],a.bytes[o]+=r.read[i]+r.written[i]}return[...n.values()]}var Bo=new WeakMap;function Ro({model:e,search:t}){let n=Bo.
get(e)??{kinds:Do(e,i=>e.kinds[i]),operators:Do(e,i=>e.shorts[i])};Bo.set(e,n);let r=rh(n.kinds);return f("div",{class:"panel",children:[f("h2",{children:"Opera\
tors"}),f("p",{class:"soft",children:`Forward ${ae(r.flops[0])}, ${T(r.bytes[0])} read and written. Backward ${ae(r.flops[1])}, ${T(r.bytes[1])}.`}),f(zo,{title:"\
kind",prefix:"kind:",rows:n.kinds,search:t}),f(zo,{title:"operator",prefix:"op:",rows:n.operators,search:t})]})}function rh(e){let t=n=>[0,1].map(r=>e.reduce((i,s)=>i+
s[n][r],0));return{name:"",steps:t("steps"),flops:t("flops"),bytes:t("bytes")}}function zo({title:e,prefix:t,rows:n,search:r}){let i=a=>Math.max(1,...n.flatMap(
l=>l[a])),s=(a,l)=>{let u=i(a);return c=>f("span",{class:"pair",children:[f("span",{children:[f(cn,{share:c[a][0]/u,side:"forward"}),l(c[a][0])]}),f("span",{children:[
f(cn,{share:c[a][1]/u,side:"backward"}),l(c[a][1])]})]})},o=[{name:e,value:a=>a.name,cell:a=>f("button",{class:"link",onClick:()=>r(`${t}${a.name}`),children:f(
"bdi",{children:a.name})})},{name:"steps",value:a=>a.steps[0]+a.steps[1],cell:a=>f("span",{class:"pair",children:[f("span",{children:O(a.steps[0])}),f("span",{children:O(
a.steps[1])})]})},{name:"FLOPs",value:a=>a.flops[0]+a.flops[1],cell:s("flops",ke)},{name:"bytes",value:a=>a.bytes[0]+a.bytes[1],cell:s("bytes",T)}];return f(dt,
{columns:o,rows:n,sort:[2,-1],empty:"There is no step."})}function ih(e){let t=new Map,{nodes:n,sources:r,saved:i}=e.data;for(let[s,,,o]of i){let a=s<e.count?r[n.
source[s]]:void 0,l=s>=e.count?"inputs and parameters":e.lineOf(s)||"no source line",u=t.get(l)??{line:l,code:a?e.text(a[3]):"",bytes:0,values:[]};t.set(l,u),u.
bytes+=o,u.values.push(s)}return[...t.values()]}function Fo({model:e,go:t,search:n}){let r=ih(e),i=r.reduce((a,l)=>a+l.bytes,0),s=Math.max(1,...r.map(a=>a.bytes)),
o=[{name:"source line",value:a=>a.line,cell:a=>f("span",{children:[a.line.includes(":")?f("button",{class:"link",title:a.line,onClick:()=>n(`line:${a.line}`),children:f(
"bdi",{children:a.line.split("/").at(-1)})}):a.line,f("code",{class:"soft",children:f("bdi",{children:a.code})})]})},{name:"saved",value:a=>a.bytes,cell:a=>f("s\
pan",{children:[f(cn,{share:a.bytes/s,side:"saved"})," ",T(a.bytes)]})},{name:"values",value:a=>a.values.length,cell:a=>f("span",{children:[O(a.values.length),"\
 ",f(wt,{model:e,value:a.values[0],go:t})]})}];return f("div",{class:"panel",children:[f("h2",{children:"Saved, by source line"}),f("p",{class:"soft",children:`${T(
i)} that the caller does not hold anyway. A value that shares memory with another counts once.`}),f(dt,{columns:o,rows:r,sort:[1,-1],empty:"Nothing is saved."})]})}
function Vo({model:e,go:t}){let n=new Map;for(let h of e.data.ports)!h.into&&h.role==="gradient"&&n.set(h.value,e.text(h.name));let{value:r,rows:i}=e.data.stats,
s=r.map((h,p)=>({value:h,gradient:n.get(h)??"",row:i[p]})),o=(h,p)=>({name:h,value:d=>d.row[p]??NaN,cell:d=>f("span",{class:(p===6||p===7)&&d.row[p]?"alarm":"",
children:Bt(d.row[p])})}),a=[{name:"value",value:h=>h.gradient||e.nameOf(h.value),cell:h=>f("span",{children:[h.gradient&&f("span",{class:"tag",children:["gradi\
ent of ",f("bdi",{children:h.gradient})]}),f(wt,{model:e,value:h.value,go:t})]})},o("NaN",6),o("Inf",7),o("norm",5),o("mean",3),o("std",4),o("min",1),o("max",2),
o("zeros",8),o("count",0)],l=s.filter(h=>h.row[6]||h.row[7]).length,u=s.filter(h=>h.gradient),c=s.filter(h=>!h.gradient);return f("div",{class:"panel",children:[
f("h2",{children:"Values"}),f("p",{class:l?"alarm":"soft",children:l?`${O(l)} of ${O(s.length)} measured values have NaN or Inf.`:`No NaN and no Inf in ${O(s.length)}\
 measured values.`}),u.length>0&&f("h3",{children:"Gradients"}),u.length>0&&f(dt,{columns:a,rows:u,sort:[l?1:3,-1],empty:""}),f("h3",{children:"Other values"}),
f(dt,{columns:a,rows:c,sort:[l?1:3,-1],empty:"No other value was measured."})]})}function Wo({model:e,go:t}){let n=new Map,{own:[,r]}=e.savedSum();for(let s of e.
data.ports)$e(n,`${s.side?"Backward":"Forward"} ${s.into?"takes":"gives"}: ${s.role}`).push(s);let i=[{name:"name",value:s=>e.text(s.name),cell:s=>f("bdi",{children:e.
text(s.name)})},{name:"type",value:s=>e.text(s.spec),cell:s=>f("code",{children:e.text(s.spec)})},{name:"bytes",value:s=>s.bytes,cell:s=>T(s.bytes)},{name:"step",
value:s=>s.into?e.usersOf(s.value)[0]??-1:s.value,cell:s=>{let o=s.into?e.usersOf(s.value)[0]:s.value;return o===void 0?f("span",{class:"soft",children:"unused"}):
f(wt,{model:e,value:o,go:t})}}];return f("div",{class:"panel",children:[f("h2",{children:"Inputs and outputs"}),[...n].map(([s,o])=>f("details",{open:o.length<=
12,children:[f("summary",{children:[s," ",f("span",{class:"soft",children:[O(o.length),", ",T(o.reduce((a,l)=>a+l.bytes,0)),o[0].role==="saved"&&`, of which ${T(
r)} in memory that nothing else has`]})]}),f(dt,{columns:i,rows:o,sort:[2,-1],empty:""})]},s))]})}var oi=430,sh=[["changes","Changes","h"],["details","Details","d"],["code","Code","c"],["memory","Memory","m"],["lines","Lines","l"],["operators","Operators","o"],
["values","Values","v"],["ports","In/out","i"]],Vn=class extends G{picture;finder;searchers=new Map;keep=new Map;timer=0;marking=0;changes=Pi(this.props.models);lastChange=-1;state={
...this.begin(location.hash),hovered:null,query:"",found:null,marked:null,at:-1,moment:null,tab:this.props.page.changes?"changes":"details",help:!1,told:"",wide:oi};begin(t){
let{models:n}=this.props,r=this.firstChange(t),{unit:i,opened:s,...o}=ji(t,n),a=r?.pair??o.pair,l=n[a],u=s??this.first(l),c=i??r?.node??null;return{pair:a,selected:i,
opened:c===null||s?u:un(l,u,c)}}firstChange(t){return t||innerWidth<=760?void 0:this.changes[0]}first(t){let n=innerWidth>760?innerWidth-(this.state?.wide??oi)-
5:innerWidth;return Hi(t,n-2*fe(n))}get model(){return this.props.models[this.state.pair]}get scene(){return this.kept("scene",[this.model,this.state.opened],()=>ln(
this.model,this.state.opened,this.room()))}room(){let[t,n]=this.picture?.shownSize()??[innerWidth>760?innerWidth-oi-5:innerWidth,(innerHeight-170)*(innerWidth>760?
1:.6)];return{wide:Math.max(200,t-2*fe(t)),high:Math.max(150,n-2*_e)}}get searcher(){let{model:t}=this;return this.searchers.has(t)||this.searchers.set(t,new pn(
t)),this.searchers.get(t)}kept(t,n,r){let i=this.keep.get(t);if(i&&i.key.length===n.length&&i.key.every((o,a)=>o===n[a]))return i.value;let s=r();return this.keep.
set(t,{key:n,value:s}),s}componentDidMount(){document.addEventListener("keydown",this.pressed),addEventListener("hashchange",this.followed),setTimeout(()=>this.
searcher,300);let t=this.state.selected??this.firstChange(location.hash)?.node??null;t!==null&&this.picture.show(this.visible(t))}componentWillUnmount(){document.
removeEventListener("keydown",this.pressed),removeEventListener("hashchange",this.followed)}componentDidUpdate(t,n){let{pair:r,selected:i,opened:s}=this.state;n.
pair===r&&n.selected===i&&n.opened===s||(clearTimeout(this.timer),location.protocol!=="about:"&&(this.timer=window.setTimeout(()=>history.replaceState(null,"",fr(
r,i,s)),250)))}followed=t=>{clearTimeout(this.timer);let n=this.begin(new URL(t.newURL).hash);this.setState(n,()=>n.selected!==null&&this.picture.show(this.visible(
n.selected)))};visible(t){return Ct(this.model,this.scene,t)}go=t=>{let n=this.scene.byUnit.has(t)?this.state.opened:un(this.model,this.state.opened,t);this.setState(
{opened:n,selected:t,hovered:null,...this.momentOf(t)},()=>this.picture.show(this.visible(t)))};momentOf(t){return t!==null&&t>=0&&this.state.tab!=="memory"?{moment:null}:
{}}select=t=>{let{tab:n}=this.state,r=t===V(0)?null:t;this.setState({selected:r,told:"",tab:n==="changes"&&r!==null?"details":n})};fold=t=>{this.picture.hold(t);
let n=Ki(this.model,this.state.opened,t),r=this.state.selected,i=r!==null&&!Yt(this.model,n,t)&&this.model.above(r).includes(t);this.setState({opened:n,selected:t===
0?this.state.selected:i||r===null||r<0?V(t):r})};openAll=t=>{this.picture.hold(t),this.setState({opened:Xi(this.model,this.state.opened,t),selected:t===0?null:V(
t)})};turn=(t,n)=>{this.picture.hold(t);let{model:r}=this,{selected:i}=this.state,s=Yi(r,this.state.opened,t,n);this.setState({opened:s,selected:i!==null&&r.above(
i).includes(t)?this.sameIn(t,s,i):i})};sameIn(t,n,r){let{model:i}=this,s=[r,...i.above(r).map(V)],o=s.indexOf(V(t)),a=i.frame(t).units[Ft(i,n,t)];for(let l of s.
slice(0,o-1).reverse()){let u=l<0?i.framePlace[-l-1]:i.place[l],c=a<0?i.frame(-a-1).units[u]:void 0;if(c===void 0)return V(t);a=c}return a}depth=t=>this.setState(
{opened:Gi(this.model,this.state.opened,t)},()=>{this.state.selected!==null?this.picture.show(this.visible(this.state.selected)):this.picture.fit()});search=t=>{
let n=this.searcher.find(t);this.setState({query:t,found:n,at:-1}),clearTimeout(this.marking),this.marking=window.setTimeout(()=>this.setState({marked:n}),90)};ask=t=>{
this.search(t),this.finder.focus()};goMatch=t=>{let n=this.state.found.units[t];this.setState({at:t}),this.go(n)};nextMatch(t){let{found:n,at:r}=this.state,i=n?.
units.length??0;i&&this.goMatch(r<0?t>0?0:i-1:(r+t+i)%i)}moment=t=>this.setState({moment:t,tab:"memory"});exported=()=>{let t=this.props.page.title.replace(/[^\w.-]+/g,
"_").slice(0,60)||"graph";hs(`${t}.svg`,fs(this.picture,this.props.page.title))};link=()=>{let{pair:t,selected:n,opened:r}=this.state,i=location.href.replace(/#.*$/,
"")+fr(t,n,r);ds(i).then(s=>this.setState({told:s}))};choose=t=>{let n=this.first(this.props.models[t]);this.setState({pair:t,opened:n,selected:null,hovered:null,
query:"",found:null,marked:null,at:-1,moment:null})};jump=(t,n)=>{if(t===this.state.pair)return this.go(n);let r=this.props.models[t];this.choose(t),this.setState(
{opened:un(r,this.first(r),n),selected:n},()=>this.picture.show(this.visible(n)))};nextChange(t){let{changes:n}=this,{pair:r,selected:i}=this.state,s=Jn(n,this.
props.models,r,i);if(!n.length)return;let o=s<0?this.lastChange:s;this.lastChange=o<0?t>0?0:n.length-1:(o+t+n.length)%n.length,this.jump(n[this.lastChange].pair,
n[this.lastChange].node)}turnAround(t){let{selected:n,opened:r}=this.state,s=(n===null?[]:[...n<0?[-n-1]:[],...this.model.above(n)]).find(o=>this.model.frame(o).
kind==="loop")??this.onlyLoop();s!==void 0&&this.turn(s,Ft(this.model,r,s)+t)}onlyLoop(){let t=this.scene.boxes.filter(n=>n.unit<0&&this.model.frame(-n.unit-1).
kind==="loop");return t.length?-t[0].unit-1:void 0}pressed=t=>{let n=t.target;if(t.ctrlKey||t.metaKey||t.altKey||/^(INPUT|SELECT|TEXTAREA)$/.test(n.tagName)||t.
key==="Enter"&&n.tagName==="BUTTON"||t.key.startsWith("Arrow")&&n.closest(".code, .side"))return;let r=this.actions(t)[t.key];r&&(t.preventDefault(),r())};actions(t){
let{model:n,scene:r}=this,{selected:i}=this.state,s=this.picture,o=u=>u!==null&&this.go(u),a=u=>this.state.found?this.nextMatch(u):this.nextChange(u);return{"/":()=>this.
finder.focus(),"?":()=>this.setState({help:!this.state.help}),Escape:()=>this.state.help?this.setState({help:!1}):this.select(null),Enter:()=>{if(i===null)return;
let u=i<0?-i-1:r.byUnit.has(i)?n.above(i).find(c=>r.byUnit.has(V(c))):-this.visible(i)-1;t.shiftKey?this.openAll(u):this.fold(u)},ArrowDown:()=>o(Mr(n,r,i,1)),ArrowUp:()=>o(
Mr(n,r,i,-1)),ArrowLeft:()=>o($r(n,i,!1)),ArrowRight:()=>o($r(n,i,!0)),"[":()=>this.turnAround(-1),"]":()=>this.turnAround(1),n:()=>a(1),p:()=>a(-1),"+":()=>s.scaleBy(
1.3),"=":()=>s.scaleBy(1.3),"-":()=>s.scaleBy(1/1.3),f:()=>s.fit(),a:()=>s.fitAll(),...Object.fromEntries(this.tabs().map(([u,,c])=>[c,()=>this.setState({tab:u})])),
...Object.fromEntries(Array.from({length:10},(u,c)=>[String(c),()=>this.depth(Math.max(1,c))]))}}tabs(){let{stats:t}=this.model.data,n=[!this.props.page.changes&&
"changes",!t&&"values",!this.model.timed&&"memory",!this.model.timed&&"lines"];return sh.filter(([r])=>!n.includes(r))}lit(){let{model:t,scene:n}=this,{selected:r,
hovered:i}=this.state,s=i??r;if(s===null||s===V(0)||i!==null&&n.byUnit.get(i)?.kind==="open"&&r===null)return null;let o=i!==null&&n.byUnit.get(i)?.kind==="open"?
r:s;return this.kept("lit",[n,o],()=>Zi(t,n,o))}panel(){let{model:t,go:n,jump:r}=this,{pair:i,tab:s,opened:o,selected:a,moment:l}=this.state,{page:u,models:c}=this.
props,h=s==="code"?this.lit():null;return this.kept("panel",[t,s,o,a,l,h],()=>s==="changes"&&u.changes?f(Ze,{page:u,models:c,jump:r,marked:this.changes,at:Jn(this.
changes,c,i,a)}):s==="code"?f(Qe,{model:t,selected:a,go:n,lit:h?.steps??null}):s==="memory"&&t.timed?f(ks,{model:t,moment:l,go:n,onMoment:this.moment}):s==="lin\
es"&&t.timed?f(Fo,{model:t,go:n,search:this.ask}):s==="operators"?f(Ro,{model:t,search:this.ask}):s==="values"&&t.data.stats?f(Vo,{model:t,go:n}):s==="ports"?f(
Wo,{model:t,go:n}):f(Qi,{page:u,model:t,opened:o,selected:a,go:n,jump:r,onFold:this.fold,onOpenAll:this.openAll,onTurn:this.turn}))}bar(){let{page:t,models:n}=this.
props,{pair:r,query:i,found:s,at:o,told:a}=this.state,{model:l}=this,u=qi(l,this.state.opened);return f("header",{children:[f("h1",{title:t.title,children:f("bd\
i",{children:t.title})}),n.length>1&&f("select",{"aria-label":"pairs of graphs",value:r,onChange:c=>this.choose(Number(c.currentTarget.value)),children:n.map((c,h)=>f(
"option",{value:h,children:c.data.name||`pair ${h+1}`},h))}),f(gn,{mounted:c=>this.finder=c,model:l,query:i,found:s,at:o,onQuery:this.search,onGo:this.goMatch,onLeave:()=>this.
focusPicture()}),f("span",{class:"group",role:"group","aria-label":"depth",children:[f("button",{title:"close one level",disabled:u<=1,onClick:()=>this.depth(Math.
max(1,u-1)),children:"−"}),f("span",{class:"soft",title:"frames are open to this depth",children:["depth ",u]}),f("button",{title:"open one level",disabled:u>
l.deepest,onClick:()=>this.depth(u+1),children:"+"})]}),f("span",{class:"group",children:[f("button",{title:"the whole picture (a)",onClick:()=>this.picture.fitAll(),
children:"fit"}),f("button",{title:"copy a link to the selection",onClick:this.link,children:"link"}),f("button",{title:"save the visible part as an SVG file",onClick:this.
exported,children:"SVG"}),f("button",{title:"keys (?)",onClick:()=>this.setState({help:!0}),children:"?"})]}),a&&(a.includes("#")?f("input",{class:"told",readOnly:!0,
value:a,"aria-label":"link",onFocus:c=>c.currentTarget.select()}):f("output",{class:"told",children:a}))]})}focusPicture(){document.querySelector("svg.picture").
focus()}caption(){let{model:t}=this,{hovered:n,selected:r}=this.state,i=n??r;if(i===null)return"";if(i<0)return[t.text(t.frame(-i-1).name),t.text(t.frame(-i-1).
label)].filter(Boolean).join("  ");let s=t.data.sources[t.data.nodes.source[i]]?.[3];return[`${t.nameOf(i)}: ${t.specOf(i)} = ${t.call(i)}`,t.lineOf(i),s===void 0?
"":t.text(s)].filter(Boolean).join("   ")}dragged=t=>{t.buttons===1&&this.setState({wide:Math.max(240,Math.min(innerWidth-200,innerWidth-t.clientX))})};render(){
let{model:t,scene:n}=this,{selected:r,marked:i,tab:s,help:o,moment:a,wide:l,opened:u}=this.state,c=this.kept("marks",[i],()=>({matches:i?.within??null,steps:i?.
steps??null}));return f("div",{class:"app",style:{"--wide":`${l}px`},children:[this.bar(),f("main",{children:[f("div",{class:"stage",children:[f(Fn,{mounted:h=>this.
picture=h,model:t,scene:n,opened:u,marks:c,lit:this.lit(),pinned:r!==null&&r>=0,onClick:this.select,onFold:this.fold,onOpenAll:this.openAll,onTurn:this.turn,onHover:this.
hover}),f(oh,{neighbors:t.neighbors,verdict:this.props.page.verdict}),f("div",{class:"caption",children:f("bdi",{children:this.caption()})})]}),f("div",{class:"\
grip",onPointerDown:h=>h.currentTarget.setPointerCapture(h.pointerId),onPointerMove:this.dragged}),f("section",{class:"side",children:[f("nav",{role:"tablist",children:this.
tabs().map(([h,p,d])=>f("button",{role:"tab","aria-selected":s===h,title:`key ${d}`,onClick:()=>this.setState({tab:h}),children:p},h))}),this.panel()]})]}),t.timed&&
f(bn,{model:t,moment:a,selected:r,onMoment:this.moment}),o&&f(ah,{changes:this.props.page.changes!==void 0,onClose:()=>this.setState({help:!1})})]})}hover=t=>{t!==
this.state.hovered&&this.setState({hovered:t})}};function oh({neighbors:e,verdict:{word:t,meaning:n,tone:r}}){return f("div",{class:"legend",children:[f("span",
{class:"forward",children:"forward ↓"}),e?f("span",{class:"neighbor",children:"neighbor of the region"}):f("span",{class:"saved",children:"saved for the backw\
ard"}),f("span",{class:"backward",children:"backward ↑"}),f("span",{class:"soft",children:"gray: a view, computes nothing"}),f("span",{class:"verdict",children:[
f("b",{class:`tone-${r}`,children:f("bdi",{children:t})}),": ",f("bdi",{children:n})]})]})}function ah({changes:e,onClose:t}){return f("div",{class:"cover",onClick:t,
children:f("div",{class:"card",role:"dialog","aria-label":"keys",children:[f("h2",{children:"Keys"}),f("dl",{children:vs(e).map(([n,r])=>[f("dt",{children:f("kb\
d",{children:n})},n),f("dd",{children:r},`${n} `)])}),f("button",{onClick:t,children:"close"})]})})}function lh(e){let t=Ci(document.getElementById("data")?.textContent??"");document.title=t.title||document.title,oe(f(Vn,{page:t,models:t.pairs.map(n=>new je(n,
t.pairs.length>1?n.name:t.title))}),e)}var Ho=document.getElementById("app");try{lh(Ho)}catch(e){let t=e instanceof Error?e.message:String(e);oe(f("div",{class:"\
wrong",role:"alert",children:[f("h1",{children:"This page cannot be drawn"}),f("p",{children:e instanceof le?"Its data are not whole, or are not what this page \
reads. The first thing that is wrong:":"Something in the page itself failed:"}),f("pre",{children:t}),f("p",{children:["Write the page again: ",f("code",{children:"\
backprint view SAMPLE -o page.html"}),"."]})]}),Ho)}})();
